"""vLLM-Omni's speech stream: `/v1/audio/speech/stream`, one utterance after another on a socket.

Source: https://docs.vllm.ai/projects/vllm-omni (speech API, 2026) and its handler
`serving_speech_stream.py`. What differs and why is in `docs/protocol/vllm-omni.md`.

While an utterance is spoken its server does not read; here what comes meanwhile waits in a queue,
so that a client that is gone is seen at once.
"""

from __future__ import annotations

import base64
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from rtts.audio.wav import wav_header
from rtts.errors import (
    BadRequestError,
    ProtocolError,
    RttsError,
    TextBufferFullError,
    UnsupportedFormatError,
)
from rtts.protocol import reading
from rtts.protocol.dialect import (
    Hangup,
    House,
    Reply,
    Request,
    Route,
    SocketDialect,
    Step,
    Steps,
    cut_short,
    status_of,
)
from rtts.protocol.events import (
    AnyServerMessage,
    Audio,
    Cancel,
    Chunking,
    Done,
    End,
    Error,
    Format,
    Marks,
    SegmentStarted,
    Start,
    Text,
)

RATE_HZ = 24_000
# What waits for its turn; as much as a session would buffer.
MAX_WAITING_CHARS = 40_000
MAX_WAITING_MESSAGES = 10_000
# An utterance that is sent in one piece is held until it is whole: 22 minutes of speech.
MAX_PIECE_BYTES = 67_108_864
# Clients' libraries refuse frames over 1 MiB unless told otherwise.
MAX_FRAME_BYTES = 524_288
_POLICY_VIOLATION = 1008
_FORMATS = {
    "pcm": Format(codec="pcm_s16le", sample_rate=RATE_HZ),
    "wav": Format(codec="pcm_s16le", sample_rate=RATE_HZ),  # its header is put on here
    "opus": Format(codec="opus", container="ogg", bitrate=48_000),
    "mp3": Format(codec="mp3", sample_rate=RATE_HZ, bitrate=64_000),
}


class _Config(Struct):
    """`session.config`. What is not here is ignored."""

    model: str | None = None
    voice: str | None = None
    speaker: str | None = None
    language: str | None = None
    instructions: str | None = None
    response_format: Literal["wav", "pcm", "flac", "mp3", "aac", "opus"] | None = None
    speed: float | None = None
    seed: int | None = None
    stream_audio: bool = False
    split_granularity: Literal["none", "sentence", "clause"] = "none"
    word_timestamps: bool = False
    ref_audio: Any = None
    speaker_embedding: Any = None


class _Message(Struct):
    """Any message, as far as all have the same fields."""

    type: str = ""
    text: str = ""


@dataclass(slots=True)
class _Sentence:
    """What is spoken between `audio.start` and `audio.done`."""

    segment: int  # of the session; 0 where the utterance is one piece
    text: str
    starts_ms: float
    is_announced: bool = False
    n_bytes: int = 0
    n_chunks: int = 0
    pieces: list[bytes] = field(default_factory=list)  # while they are held


@dataclass(slots=True)
class _Utterance:
    """From the first text to `input.done`, and on until all of it was spoken."""

    ctx: str
    index: int
    config: _Config
    text: str = ""  # with split_granularity none, until it is complete
    is_ended: bool = False  # `input.done` has come
    is_started: bool = False  # the session knows of it
    is_over: bool = False  # and has said `done`
    sentences: int = 0


class Stream(SocketDialect):
    """`/v1/audio/speech/stream`."""

    name: ClassVar[str] = "vllm-omni"

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """See `Dialect`: as the HTTP surface of the same server, which is OpenAI's."""
        fields = {"message": error.message, "type": error.code, "code": status_of(error)}
        return Reply(status=status_of(error), body=msgspec.json.encode({"error": fields}))

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._config: _Config | None = None
        self._utterances = 0
        self._utterance: _Utterance | None = None
        self._sentence: _Sentence | None = None
        self._segments: dict[int, tuple[str, float]] = {}  # announced, not yet heard
        self._words: dict[int, list[tuple[str, int, int]]] = {}  # by segment, not yet sent
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()  # type and fields, in order
        self._waiting_chars = 0

    # --- what the client says -------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        try:
            fields = reading.load_object(data)
            message = reading.convert(fields, _Message)
        except ProtocolError as error:
            return self._refuse(error)
        busy = self._utterance
        if busy is None or not busy.is_ended:
            return self._take(message, fields)
        self._waiting_chars += len(message.text)
        if self._waiting_chars > MAX_WAITING_CHARS or len(self._waiting) >= MAX_WAITING_MESSAGES:
            self._waiting_chars -= len(message.text)
            raise TextBufferFullError("too much text waits for its turn")
        self._waiting.append((message.type, fields))
        return ()

    def _take(self, message: _Message, fields: dict[str, Any]) -> Steps:
        if message.type == "session.config":
            return self._configure(fields)
        if message.type == "session.close":
            return [Hangup()]
        if self._config is None:
            return self._refuse(BadRequestError(f"expected session.config, got {message.type!r}"))
        if message.type == "input.text":
            return self._text(message.text, self._config)
        if message.type == "input.done":
            return self._done(self._config)
        return self._refuse(BadRequestError(f"unknown message type {message.type[:64]!r}"))

    def _refuse(self, error: RttsError) -> Steps:
        """A client that did not even send a configuration is shown out."""
        said = reading.encode({"type": "error", "message": error.message})
        return (said,) if self._config else (said, Hangup(_POLICY_VIOLATION, "no session.config"))

    def _configure(self, fields: dict[str, Any]) -> Steps:
        if self._utterance is not None:
            return self._refuse(BadRequestError("send input.done before another session.config"))
        try:
            config = reading.convert({k: v for k, v in fields.items() if v is not None}, _Config)
            self._check(config)
        except RttsError as error:
            return self._refuse(error)
        self._config = config
        return ()

    def _check(self, config: _Config) -> None:
        self.house.names.model(config.model)
        self.house.names.voice(config.voice or config.speaker, or_default=False)
        if config.ref_audio is not None or config.speaker_embedding is not None:
            raise BadRequestError("ref_audio: not taken here; name a voice of this server")
        form = config.response_format or "wav"
        if form not in _FORMATS:
            raise UnsupportedFormatError(f"response_format: {form} is not made here")
        if config.split_granularity != "none" and form in ("opus", "mp3"):
            raise UnsupportedFormatError("response_format: sentences are sent as pcm or wav")
        if config.word_timestamps and not (config.stream_audio and form == "pcm"):
            raise BadRequestError("word_timestamps: needs stream_audio and response_format pcm")

    def _text(self, text: str, config: _Config) -> Steps:
        if not text:
            return ()
        utterance = self._utterance or self._open(config)
        if utterance.is_over:
            return ()  # it has failed; the rest of its text means nothing
        if config.split_granularity == "none":
            utterance.text += text
            if len(utterance.text) > MAX_WAITING_CHARS:
                utterance.text = ""
                raise TextBufferFullError("too much text before input.done")
            return ()
        steps: list[Step] = [] if utterance.is_started else [self._start(utterance)]
        return [*steps, Text(ctx=utterance.ctx, text=text)]

    def _open(self, config: _Config) -> _Utterance:
        self._utterance = _Utterance(f"u{self._utterances}", self._utterances, config)
        return self._utterance

    def _done(self, config: _Config) -> Steps:
        utterance = self._utterance or self._open(config)
        utterance.is_ended = True
        if utterance.is_over or not (utterance.is_started or utterance.text):
            return self._conclude(utterance)
        if utterance.is_started:
            return (End(ctx=utterance.ctx),)
        start = self._start(utterance)
        self._segments[0] = (utterance.text, 0.0)
        return (start, Text(ctx=utterance.ctx, text=utterance.text, end=True))

    def _start(self, utterance: _Utterance) -> Start:
        utterance.is_started = True
        config = utterance.config
        is_clause = config.split_granularity == "clause"
        return Start(
            ctx=utterance.ctx,
            voice=self.house.names.voice(config.voice or config.speaker, or_default=False),
            language=config.language,
            instructions=config.instructions,
            speed=self.house.speed(config.speed),
            seed=self.house.seed(config.seed),
            format=_FORMATS[config.response_format or "wav"],
            chunking=Chunking(min_chars=1) if is_clause else None,
            timestamps="word" if config.word_timestamps else "none",
            max_lead_ms=None if config.stream_audio else 0,
        )

    # --- what the session says ------------------------------------------------------------------

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SocketDialect`."""
        if isinstance(message, Error):
            return self._failed(message)
        utterance = self._utterance
        if utterance is None or getattr(message, "ctx", None) != utterance.ctx:
            return ()
        match message:
            case SegmentStarted() if utterance.config.split_granularity != "none":
                self._segments[message.segment] = (message.text, message.at_ms)
                return ()
            case Audio():
                return self._audio(message, utterance)
            case Marks():
                segment = 0 if utterance.config.split_granularity == "none" else message.segment
                self._words.setdefault(segment, []).extend(message.items)
                return ()
            case Done():
                utterance.is_over = True
                is_cut = message.reason == "shutdown"
                has_failed = is_cut or message.reason == "error"
                steps = [*self._failed(cut_short(message))] if is_cut else []
                steps += self._close_sentence(utterance, has_failed=has_failed)
                if not utterance.is_ended:
                    return steps  # its `input.done` is still to come
                return [*steps, *self._conclude(utterance), *self._go_on()]
            case _:
                return ()

    def _audio(self, message: Audio, utterance: _Utterance) -> Steps:
        is_whole = utterance.config.split_granularity == "none"
        number = 0 if is_whole else message.segment
        steps: list[Step] = []
        if self._sentence is None or (
            number != self._sentence.segment and number in self._segments
        ):
            steps += self._close_sentence(utterance)
            self._sentence = _Sentence(number, *self._segments.pop(number, ("", 0.0)))
        sentence, config = self._sentence, utterance.config
        if not config.stream_audio:
            sentence.pieces.append(message.data)
            sentence.n_bytes += len(message.data)
            if sentence.n_bytes > MAX_PIECE_BYTES:
                return [*steps, *self._too_long(utterance)]
            return steps
        is_first = not sentence.is_announced
        steps += self._announce(sentence, utterance)
        data = message.data
        if is_first and config.response_format in (None, "wav"):
            data = wav_header(RATE_HZ) + data
        return [*steps, self._chunk(data, sentence, utterance)]

    def _too_long(self, utterance: _Utterance) -> Steps:
        said = {"type": "error", "message": "too long for one piece; use stream_audio"}
        self._sentence = None
        return (reading.encode(said), Cancel(ctx=utterance.ctx))

    def _announce(self, sentence: _Sentence, utterance: _Utterance) -> Steps:
        if sentence.is_announced:
            return ()
        sentence.is_announced = True
        config = utterance.config
        fields: dict[str, Any] = {
            "type": "audio.start",
            "utterance_index": utterance.index,
            "sentence_index": utterance.sentences,
            "sentence_text": sentence.text,
            "format": config.response_format or "wav",
            "sample_rate": RATE_HZ,
            "channels": 1,
        }
        if config.word_timestamps:
            fields["word_timestamps"] = True
        return (reading.encode(fields),)

    def _chunk(self, data: bytes, sentence: _Sentence, utterance: _Utterance) -> Step:
        began_ms = _duration_ms(sentence.n_bytes)
        sentence.n_bytes += len(data)
        if not utterance.config.word_timestamps:
            return data
        return self._timed(data, sentence, utterance, began_ms, None)

    def _timed(
        self,
        data: bytes,
        sentence: _Sentence,
        utterance: _Utterance,
        began_ms: int,
        words: list[dict[str, Any]] | None,
    ) -> Step:
        """Audio in JSON, as it is sent where words are timed."""
        fields = {
            "type": "audio.chunk",
            "utterance_index": utterance.index,
            "sentence_index": utterance.sentences,
            "chunk_id": sentence.n_chunks,
            "chunk_start_ms": began_ms,
            "chunk_end_ms": _duration_ms(sentence.n_bytes),
            "sample_rate": RATE_HZ,
            "channels": 1,
            "audio_b64": base64.b64encode(data).decode(),
            "timestamps": words,
        }
        sentence.n_chunks += 1
        return reading.encode(fields)

    def _words_of(self, sentence: _Sentence) -> list[dict[str, Any]] | None:
        """Its words on its own clock; None if none were timed."""
        items = self._words.pop(sentence.segment, None)
        starts_ms = round(sentence.starts_ms)
        if items is None:
            return None
        return [
            {"word": word, "start_ms": start - starts_ms, "end_ms": end - starts_ms}
            for word, start, end in items
        ]

    def _close_sentence(self, utterance: _Utterance, *, has_failed: bool = False) -> list[Step]:
        sentence, self._sentence = self._sentence, None
        if sentence is None:
            return []
        steps: list[Step] = [*self._announce(sentence, utterance)]
        if sentence.pieces:
            data = b"".join(sentence.pieces)
            if utterance.config.response_format in (None, "wav"):
                data = wav_header(RATE_HZ, len(data) // 2) + data
            sentence.n_bytes = len(data)
            steps += [
                data[at : at + MAX_FRAME_BYTES] for at in range(0, len(data), MAX_FRAME_BYTES)
            ]
        if utterance.config.word_timestamps:
            steps.append(self._timed(b"", sentence, utterance, 0, self._words_of(sentence)))
        done = {
            "type": "audio.done",
            "utterance_index": utterance.index,
            "sentence_index": utterance.sentences,
            "total_bytes": sentence.n_bytes,
            "error": has_failed,
        }
        utterance.sentences += 1
        return [*steps, reading.encode(done)]

    def _failed(self, message: Error) -> Steps:
        fields: dict[str, Any] = {"type": "error", "message": message.message}
        if message.ctx is not None and self._sentence is not None and self._sentence.n_bytes:
            fields |= {"partial_audio": True, "action": "discard"}
        return (reading.encode(fields),)

    # --- one after another ----------------------------------------------------------------------

    def _conclude(self, utterance: _Utterance) -> list[Step]:
        """Say that an utterance is over."""
        self._utterance = None
        self._utterances += 1
        self._segments.clear()
        self._words.clear()
        done = {
            "type": "session.done",
            "utterance_index": utterance.index,
            "total_sentences": utterance.sentences,
        }
        return [reading.encode(done)]

    def _go_on(self) -> list[Step]:
        """Take what has come meanwhile, up to the end of the next utterance."""
        steps: list[Step] = []
        while self._waiting and (self._utterance is None or not self._utterance.is_ended):
            kind, fields = self._waiting.popleft()
            text = fields.get("text", "")
            self._waiting_chars -= len(text)
            steps += self._take(_Message(type=kind, text=text), fields)
        return steps


def _duration_ms(n_bytes: int) -> int:
    return round(1000 * n_bytes / (2 * RATE_HZ))


ROUTES = (Route("WS", "/v1/audio/speech/stream", Stream),)
