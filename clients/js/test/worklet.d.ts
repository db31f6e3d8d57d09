// What an AudioWorklet module finds beside the language; lib.dom has the page's side only.
declare const currentFrame: number;
declare function registerProcessor(name: string, processor: unknown): void;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
