/**
 * Where to connect, as whom, and with which WebSocket.
 *
 * @module
 */

import { ConnectError } from "./errors.js";

/** @typedef {import("./index.d.ts").ConnectOptions} ConnectOptions */

/** @param {ConnectOptions} options */
export function offers({ protocol = "rtts.v1", apiKey }) {
  if (apiKey === undefined) return [protocol];
  const letters = String.fromCharCode(...new TextEncoder().encode(apiKey));
  const key = btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  return [protocol, `rtts.auth.${key}`];
}

/**
 * @param {ConnectOptions} options
 * @returns {import("./index.d.ts").WebSocketConstructor}
 */
export function implementation(options) {
  const found = options.WebSocket ?? globalThis.WebSocket;
  if (found === undefined) {
    throw new ConnectError(
      "no_websocket",
      "this JavaScript has no WebSocket (node has one from version 22): npm install ws, then " +
        'import { WebSocket } from "ws" and connect(url, { WebSocket })',
    );
  }
  return /** @type {import("./index.d.ts").WebSocketConstructor} */ (found);
}

/** @param {string | URL} url */
export function absolute(url) {
  const made = new URL(url, globalThis.location?.href);
  if (/^https?:$/.test(made.protocol)) made.protocol = made.protocol.replace("http", "ws");
  return made.href;
}
