// The connection to `/v1/stats`: opens it, keeps it open, shows a key where one is needed.
// Knows nothing about what the messages say, but for the two that refuse.

const PROTOCOL = "rtts-stats.v1";
const WAITS_MS = [500, 1000, 2000, 5000];
// The server says something each second. Longer silence is a connection that died without a word.
const SILENCE_MS = 6000;
const KEY = "rtts.key";

const NEEDS_KEY = new Set(["unauthorized", "auth_timeout"]);

/** A key as a subprotocol: a browser can set no headers on a WebSocket. */
function asProtocol(key) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(key));
  return "rtts.auth." + btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export class Feed {
  /**
   * @param {URL} url of the WebSocket
   * @param {(message: object) => void} onMessage
   * @param {(state: {name: "connecting" | "open" | "waiting" | "needs-key", reason?: string, hadKey?: boolean}) => void} onState
   */
  constructor(url, onMessage, onState) {
    this.url = url;
    this.onMessage = onMessage;
    this.onState = onState;
    this.socket = null;
    this.timer = 0;
    this.watchdog = 0;
    this.attempts = 0;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.timer) this.connect();
    });
  }

  get key() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  /** Uses a key from now on, for as long as this tab lives; "" forgets it. */
  useKey(key) {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
    this.attempts = 0;
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    clearInterval(this.watchdog);
    this.timer = 0;
    this.drop();
    const key = this.key;
    this.onState({ name: "connecting" });
    const socket = new WebSocket(this.url, key ? [PROTOCOL, asProtocol(key)] : [PROTOCOL]);
    this.socket = socket;
    let refusal = null;
    let heardAt = performance.now();
    socket.onmessage = ({ data }) => {
      heardAt = performance.now();
      const message = JSON.parse(data);
      if (message.type === "error") {
        refusal = message;
        return;
      }
      if (this.attempts !== -1) {
        this.attempts = -1;
        this.onState({ name: "open" });
      }
      this.onMessage(message);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      if (refusal && NEEDS_KEY.has(refusal.code)) this.askForKey(Boolean(key));
      else this.retry(refusal?.message ?? "the server does not answer");
    };
    this.watchdog = setInterval(() => {
      if (performance.now() - heardAt < SILENCE_MS) return;
      this.drop();
      this.retry("the server has gone silent");
    }, 1000);
  }

  askForKey(hadKey) {
    clearInterval(this.watchdog);
    this.socket = null;
    if (hadKey) sessionStorage.removeItem(KEY);
    this.onState({ name: "needs-key", hadKey });
  }

  retry(reason) {
    clearInterval(this.watchdog);
    this.socket = null;
    this.attempts = Math.max(this.attempts, 0);
    const waitMs = WAITS_MS[Math.min(this.attempts, WAITS_MS.length - 1)];
    this.attempts += 1;
    this.onState({ name: "waiting", reason });
    this.timer = setTimeout(() => this.connect(), waitMs * (0.8 + 0.4 * Math.random()));
  }

  drop() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }
}
