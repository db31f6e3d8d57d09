/**
 * Real-time speech from an rtts server.
 *
 * What is on the wire keeps the wire's names (`audio_ms`); its meaning is in the protocol page,
 * docs/protocol/rtts-v1.md. What is this client's own is in camel case. Times are milliseconds.
 * Places in a text (`chars`) are code points: `[...text].slice(start, end).join("")`.
 */

// --- connecting ----------------------------------------------------------------------------------

/** A WebSocket as browsers have it; `WebSocket` of the npm package `ws` is one too. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string, protocols?: string[]) => WebSocketLike;

export interface ConnectOptions {
  /** Sent as a subprotocol, since a browser cannot set headers. */
  apiKey?: string;
  /** "rtts.v1", or "rtts.v1.json" to read along on the wire. */
  protocol?: "rtts.v1" | "rtts.v1.json";
  /** Where there is no global one: node before 22. */
  WebSocket?: WebSocketConstructor;
  /** For one attempt to connect; 10 s. */
  openTimeoutMs?: number;
  /** A lost connection is tried again for this long; 30 s. */
  giveUpMs?: number;
  /** How often a silent socket is asked whether it lives, while a context is open; 5 s. */
  keepaliveMs?: number;
}

/**
 * Connect to a server.
 *
 * @param url `ws://host:8765/v1/tts`, wss, or in a page the path of its own server: `/v1/tts`.
 * @throws {ConnectError}
 */
export function connect(url: string | URL, options?: ConnectOptions): Promise<Client>;

/** A connection to a server, made by `connect`; reconnected and resumed when it is lost. */
export interface Client {
  /** What the server offers. */
  readonly ready: Ready;
  /** Set when the server asked to go away: finish, and connect anew for the next reply. */
  readonly goaway: GoingAway | null;
  /** A new context: one reply. It is opened at once. */
  context(options?: ContextOptions): Context;
  /** Milliseconds a message needs to the server and back. */
  ping(): Promise<number>;
  /** End everything: open contexts fail with `ConnectionLostError` ("closed"). */
  close(): void;
}

export const Client: { readonly prototype: Client };

// --- a context -----------------------------------------------------------------------------------

/** The audio format to ask for; what is left out takes the server's defaults. */
export interface Format {
  codec?: "opus" | "pcm_s16le" | "mulaw" | "alaw";
  container?: "raw" | "ogg" | "wav";
  sample_rate?: number;
  bitrate?: number;
  frame_ms?: 10 | 20 | 40 | 60;
}

/** How text becomes segments. */
export interface Chunking {
  mode?: "auto" | "client" | "flush";
  first_max_delay_ms?: number;
  max_delay_ms?: number;
  min_chars?: number;
}

/** Fields of the protocol's `start`, and what this client does with the reply. */
export interface ContextOptions {
  voice?: string;
  language?: string;
  instructions?: string;
  speed?: number;
  seed?: number;
  format?: Format;
  chunking?: Chunking;
  timestamps?: "none" | "word";
  max_lead_ms?: number;
  budget_ms?: number;
  priority?: "interactive" | "batch";
  /** What the wire calls it, 1 to 128 characters without control characters; by default a new name. */
  name?: string;
  /** Audio that may wait to be read; beyond it the server is told to hold on. 10 s. */
  bufferMs?: number;
  /** Audio at which the context is cancelled with `SlowReaderError` instead. 120 s. */
  maxBufferMs?: number;
  /** Whether the first-packet latency measured here is reported to the server. True. */
  reports?: boolean;
}

export type TextSource = string | Iterable<string> | AsyncIterable<string>;

/** What a player did. */
export interface PlaybackFigures {
  /** Audio of the context already heard. Once reported, go on at least every second. */
  played_ms?: number;
  first_sound_ms?: number;
  underruns?: number;
  stalled_ms?: number;
  output_latency_ms?: number;
  first_packet_ms?: number;
}

/**
 * One reply, made by `Client.context`.
 *
 * Iterating gives its events in order and ends after `Done` ("completed" or "cancelled"); any other
 * end throws `ContextFailedError` once everything that arrived was read. Leaving the loop does not
 * cancel: it can be iterated again for the rest.
 */
export interface Context extends AsyncIterable<ContextEvent> {
  /** What the wire calls it. */
  readonly name: string;
  /** The audio format, once `Started` came. */
  readonly format: StreamFormat | null;
  /** From `append` of the text that completed the first segment until its first audio was here. */
  readonly firstPacketMs: number | null;
  /** When that text was appended, on the clock of `performance.now()`. */
  readonly saidAt: number | null;
  /**
   * Append text, as it comes; cut it wherever you like. Never waits for speech.
   *
   * @throws {TypeError} After `end`.
   */
  append(text: string): void;
  /** Speak what was appended without waiting for punctuation; returns the `Flushed.id` to come. */
  flush(): string;
  /** No more text follows. */
  end(): void;
  /**
   * Stop now; unread events are dropped. Resolves to the end of the context, which divides all text
   * into `spoken` and `remaining`; of a context that was over already, how it ended.
   *
   * @param playedMs Audio of the context that was really heard.
   */
  cancel(playedMs?: number): Promise<Done>;
  /** Tell the server what your player did; figures may come after `Done`. A `Player` does it. */
  reportPlayback(figures: PlaybackFigures): void;
  /**
   * Append all of `source` as it comes, and end. An error of `source` itself cancels the context and
   * is thrown to whoever iterates.
   */
  speak(source: TextSource): this;
  [Symbol.asyncIterator](): AsyncIterator<ContextEvent, undefined>;
}

export const Context: { readonly prototype: Context };

// --- events of a context -------------------------------------------------------------------------

/** The audio format of a context; `pre_skip` counts samples at 48 kHz. */
export interface StreamFormat {
  codec: string;
  container: string;
  sample_rate: number;
  channels: number;
  frame_ms: number;
  packets_per_message: number;
  pre_skip: number;
  bitrate: number;
}

/** The context is open. */
export interface Started {
  type: "started";
  ctx: string;
  stream: number;
  format: StreamFormat;
  voice?: string;
  language?: string;
  budget_ms?: number;
}

/** A piece of the text is about to be heard; `spoken` where the voice was given other words. */
export interface Segment {
  type: "segment";
  ctx: string;
  segment: number;
  text: string;
  chars: [start: number, end: number];
  at_ms: number;
  spoken?: string;
}

/** Audio, in order and without repetition, also across a reconnect. */
export interface Audio {
  type: "audio";
  ctx: string;
  stream: number;
  seq: number;
  segment: number;
  /** Position of the first sample, in samples of the format's rate, Opus warm-up included. */
  pts: number;
  /** Sum of `AudioFlags`. */
  flags: number;
  npackets: number;
  duration_ms: number;
  /** The payload: samples, Ogg pages, or length-prefixed packets (`packets` cuts them). */
  data: Uint8Array;
  /** The raw Opus packets; for other formats the payload as one. */
  readonly packets: Uint8Array[];
}

export const Audio: { readonly prototype: Audio };

export const AudioFlags: {
  readonly FIRST_OF_CONTEXT: 1;
  readonly LAST_OF_CONTEXT: 2;
  readonly FIRST_OF_SEGMENT: 4;
  readonly LAST_OF_SEGMENT: 8;
  readonly SILENCE: 16;
  readonly REPLAY: 32;
};

/** When words are heard: `chars` are their places in the text. */
export interface Marks {
  type: "marks";
  ctx: string;
  segment: number;
  unit: "word";
  quality: "exact" | "estimated";
  items: [word: string, startMs: number, endMs: number][];
  chars: [start: number, end: number][];
}

/** The server's first-packet latency; the client's own is `Context.firstPacketMs`. */
export interface FirstAudio {
  type: "first_audio";
  ctx: string;
  ttfa_ms: number;
  split_ms: number;
  queue_ms: number;
  model_ms: number;
  encode_ms: number;
  send_ms: number;
  from_first_text_ms: number;
  budget_ms: number;
  within_budget: boolean;
}

/** All audio of what was appended before a flush has arrived. */
export interface Flushed {
  type: "flushed";
  ctx: string;
  at_ms: number;
  id?: string;
}

/** What the server measured. */
export interface DoneMetrics {
  ttfa_ms?: number;
  from_first_text_ms?: number;
  rtf?: number;
  stalls?: number;
  budget_ms?: number;
  within_budget?: boolean;
  max_lead_ms?: number;
}

/** The context is over. */
export interface Done {
  type: "done";
  ctx: string;
  reason: "completed" | "cancelled" | "error" | "expired" | "shutdown";
  segments: number;
  last_seq: number;
  audio_ms: number;
  samples: number;
  text_chars: number;
  metrics?: DoneMetrics;
  played_ms?: number;
  spoken?: string;
  remaining?: string;
  code?: string;
}

/** Something did not go as asked, but speech goes on. */
export interface Warned {
  type: "warning";
  code: string;
  message: string;
  ctx?: string;
  segment?: number;
}

/** The server refused something. Where it ends the context, iterating throws after this. */
export interface ServerError {
  type: "error";
  code: string;
  message: string;
  fatal: boolean;
  ctx?: string;
  ref?: string;
  retry_after_ms?: number;
}

/** The server is about to stop: running contexts may finish, new ones will be refused. */
export interface GoingAway {
  type: "goaway";
  reason: string;
  deadline_ms: number;
}

/** The socket was lost and the context goes on where it was; made by the client. */
export interface Reconnected {
  type: "reconnected";
  away_ms: number;
}

export type ContextEvent =
  | Started
  | Segment
  | Audio
  | Marks
  | FirstAudio
  | Flushed
  | Done
  | Warned
  | ServerError
  | GoingAway
  | Reconnected;

// --- messages of the connection --------------------------------------------------------------------

export interface Limits {
  max_contexts: number;
  max_text_chars: number;
  max_message_bytes: number;
  max_messages_per_s: number;
  idle_timeout_ms: number;
  max_session_ms: number;
  max_lead_ms: number;
}

export interface FormatOffer {
  codec: string;
  sample_rate: number | number[];
  container?: string;
}

/** What the server offers. */
export interface Ready {
  type: "ready";
  protocol: string;
  session: string;
  server: string;
  model: string;
  voices: string[];
  languages: string[];
  formats: FormatOffer[];
  limits: Limits;
  time_ms: number;
  default_voice?: string;
  budget_ms?: number;
  resume?: { token: string; window_ms: number } | null;
}

export interface ResumedContext {
  stream: number;
  next_seq: number;
  next_n: number;
  text_ended: boolean;
}

export interface Resumed {
  type: "resumed";
  session: string;
  contexts: Record<string, ResumedContext>;
}

export interface Pong {
  type: "pong";
  time_ms: number;
  t?: number | string;
}

export interface Stats {
  type: "stats";
}

/** Everything a server says. */
export type Message = Exclude<ContextEvent, Reconnected> | Ready | Resumed | Pong | Stats;

// --- playing, in a browser -------------------------------------------------------------------------

export type DecoderKind = "webcodecs" | "wasm" | "pcm";

export interface PlayerOptions {
  /** Only this one; by default the first that works here. */
  decoder?: DecoderKind;
  /** An audio context of yours; with another rate than 48000 Hz sound comes as PCM. */
  audioContext?: AudioContext;
  /** Where sound goes; by default the loudspeaker. */
  destination?: AudioNode;
  /** Of the audio context it makes; 48000. */
  sampleRate?: 8000 | 16000 | 24000 | 48000;
  /** Audio to collect before the first reply starts; it grows where the network needs it. 40. */
  startMs?: number;
  /** Address of `jitter.js`, where it is not beside this module. */
  workletUrl?: string | URL;
  /** Address of `opus-decoder.min.js`, where it is not in `vendor/` beside this module. */
  wasmUrl?: string | URL;
  /** Speech is there, but the browser plays nothing before somebody touches the page. */
  onBlocked?: (error: PlayerError) => void;
}

/** A word, when it is heard; milliseconds of the context's audio. */
export interface HeardWord {
  word: string;
  startMs: number;
  endMs: number;
  chars: [start: number, end: number];
}

export interface PlaybackHandlers {
  /** Every event of the context, as it arrives; sound is heard later. */
  onEvent?: (event: ContextEvent) => void;
  /** A word begins to be heard. */
  onWord?: (word: HeardWord) => void;
  /** The first sound left the loudspeaker, this long after the text was appended. */
  onFirstSound?: (firstSoundMs: number) => void;
}

/** How a reply was heard. */
export interface PlaybackReport {
  done: Done;
  /** Samples played, at the player's rate. */
  samples: number;
  firstPacketMs: number | null;
  firstSoundMs: number | null;
  /** Times it ran dry in the middle of speech. */
  underruns: number;
  /** Silence that came of it. */
  stalledMs: number;
  outputLatencyMs: number;
}

/** One reply being heard, made by `Player.play`. */
export interface Playback {
  readonly context: Context;
  readonly firstPacketMs: number | null;
  /** From `append` of the text that completed the first segment until its sound left the speaker. */
  readonly firstSoundMs: number | null;
  /** Audio heard so far. */
  readonly playedMs: number;
  readonly underruns: number;
  /**
   * Resolves when the last sample has been played, or the reply was cancelled. Rejects, after what
   * had arrived was played, with what the context threw, or with a `PlayerError`.
   */
  readonly finished: Promise<PlaybackReport>;
  /**
   * Silence now (barge-in), then cancel. `spoken` and `remaining` divide the text by what was heard,
   * also when the server had sent everything already (`reason` is "completed" then).
   */
  cancel(): Promise<Done>;
}

export const Playback: { readonly prototype: Playback };

/** The loudspeaker of a page. Replies given to it are heard one after another. */
export class Player {
  /**
   * Make one, in a click or key handler where possible: browsers play nothing before one.
   *
   * @throws {PlayerError}
   */
  static create(options?: PlayerOptions): Promise<Player>;
  private constructor();
  /** What decodes. */
  readonly decoder: DecoderKind;
  /** What does not work here, in sentences; also said in the console. */
  readonly degraded: string[];
  readonly audioContext: AudioContext;
  readonly sampleRate: number;
  /** Everything it plays comes out of this node. */
  readonly output: GainNode;
  /** Contexts to be played must be started with it. */
  readonly format: Format;
  /** Whether the browser plays nothing at the moment. */
  readonly isBlocked: boolean;
  readonly outputLatencyMs: number;
  /** Have the browser play; call it in a click or key handler. */
  unlock(): Promise<void>;
  /** Play a context from its first event on. */
  play(context: Context, handlers?: PlaybackHandlers): Playback;
  /** Cancel everything that is heard or waits to be. */
  stop(): Promise<(Done | null)[]>;
  close(): Promise<void>;
}

// --- errors ----------------------------------------------------------------------------------------

/** Base of the client's errors. */
export class RttsError extends Error {
  constructor(code: string, message: string, retryAfterMs?: number | null);
  /** A stable word; the server's error codes are in its protocol page. */
  readonly code: string;
  /** After which trying again is worth it, where known. */
  readonly retryAfterMs: number | null;
}

/** The connection could not be made. */
export class ConnectError extends RttsError {}

/** The connection ended; `code` says why where the server did. */
export class ConnectionLostError extends RttsError {}

/** A context ended by failing, expiring or the server's shutdown. */
export class ContextFailedError extends RttsError {
  /** The server's last word on it; null where there was none. */
  readonly done: Done | null;
}

/** More audio waited to be read than the context may hold, so it was cancelled. */
export class SlowReaderError extends ContextFailedError {}

/** This browser cannot play, or may not before somebody touches the page. */
export class PlayerError extends RttsError {}
