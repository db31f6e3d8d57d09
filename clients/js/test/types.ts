// What a user writes, and that the sources are what index.d.ts says of them. Checked by tsc, never run.
import {
  AudioFlags,
  connect,
  ConnectError,
  ContextFailedError,
  Player,
  PlayerError,
  type Client,
  type Context,
  type ContextEvent,
  type Done,
  type Playback,
  type PlaybackReport,
} from "rtts-client";
import { WebSocket } from "ws";

import type * as sources from "../src/client.js";
import type { Context as SourceContext } from "../src/context.js";
import type * as errors from "../src/errors.js";
import type { Playback as SourcePlayback } from "../src/playback.js";
import type { Player as SourcePlayer } from "../src/player.js";
import type { Audio as SourceAudio } from "../src/wire.js";

async function agent(tokens: AsyncIterable<string>): Promise<Done> {
  const client: Client = await connect("wss://example.org/v1/tts", { apiKey: "k", WebSocket });
  const context: Context = client.context({
    voice: client.ready.voices[0],
    format: { codec: "opus", sample_rate: 24_000 },
    chunking: { mode: "auto" },
  });
  for await (const token of tokens) context.append(token);
  const flushId: string = context.flush();
  context.end();
  for await (const event of context) {
    switch (event.type) {
      case "audio":
        if (event.flags & AudioFlags.LAST_OF_SEGMENT) event.packets.map((packet) => packet.length);
        break;
      case "marks":
        for (const [word, startMs] of event.items) console.log(word.length, startMs.toFixed());
        break;
      case "flushed":
        console.log(event.id === flushId);
        break;
      case "reconnected":
        console.log(event.away_ms);
    }
  }
  const node: import("../src/index.js").WebSocketConstructor = WebSocket;
  console.log(node, context.firstPacketMs ?? 0);
  return await context.cancel(120);
}

async function page(client: Client): Promise<PlaybackReport> {
  const player = await Player.create({ decoder: "wasm", onBlocked: (error) => error.message });
  const context = client.context({ format: player.format }).speak(["Hello ", "there."]);
  const playback: Playback = player.play(context, {
    onEvent: (event: ContextEvent) => event.type,
    onWord: ({ word, chars: [start, end] }) => `${word}${end - start}`,
  });
  try {
    return await playback.finished;
  } catch (error) {
    if (error instanceof PlayerError || error instanceof ConnectError) console.log(error.code);
    if (error instanceof ContextFailedError) console.log(error.done?.reason);
    throw error;
  }
}

// @ts-expect-error Players are made by `create`, which waits for what they need.
new Player();
// @ts-expect-error There is no such codec.
const wrong: import("rtts-client").Format = { codec: "mp3" };
// @ts-expect-error Text is a string.
(context: Context) => context.append(5);

// The classes of the sources, as their users see them.
type Same<Source extends Declared, Declared> = Source;
type Checked = [
  Same<sources.Client, Client>,
  Same<SourceContext, Context>,
  Same<SourcePlayback, Playback>,
  Same<SourceAudio, import("rtts-client").Audio>,
  Same<Omit<SourcePlayer, never>, Omit<Player, never>>,
  Same<typeof sources.connect, typeof connect>,
  Same<errors.ContextFailedError, ContextFailedError>,
];

export { agent, page, wrong, type Checked };
