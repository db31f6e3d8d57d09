"""ElevenLabs' WebSockets: `multi-stream-input` with its contexts, and `stream-input` with one.

Source: https://elevenlabs.io/docs/api-reference (2026) and what their SDKs and the services of
Pipecat and LiveKit send. What differs and why is in `docs/protocol/elevenlabs.md`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec import field as spelled

from rtts.errors import BadRequestError, TextBufferFullError, UnsupportedFormatError
from rtts.protocol import reading
from rtts.protocol.character_times import CharacterTimes, Heard
from rtts.protocol.dialect import (
    POLICY_VIOLATION,
    Hangup,
    House,
    Request,
    Route,
    SocketDialect,
    Step,
    Steps,
)
from rtts.protocol.elevenlabs import (
    DEFAULT_FORMAT,
    ElevenLabs,
    VoiceSettings,
    bare_token,
    knows_words,
    language,
    output_format,
    status_word,
)
from rtts.protocol.events import (
    AnyServerMessage,
    Audio,
    Auth,
    Cancel,
    Chunking,
    Done,
    End,
    Error,
    Flush,
    Marks,
    Ping,
    SegmentStarted,
    Start,
    Started,
    Text,
)

# Theirs: "default 20, can be up to 180".
INACTIVITY_S, MAX_INACTIVITY_S = 20.0, 180.0
# `close_context` right behind text that was flushed is the end of the text; later it is a listener
# who interrupts. No listener reacts this fast, and hardly a client takes longer to its next message.
BACK_TO_BACK_S = 0.05
_DEFAULT_CONTEXT = "default"
# The session limits contexts that speak; this also counts those that were opened and say nothing.
MAX_CONTEXTS = 64
_MAX_NAME_CHARS = 100
# What may wait for another context of its name; a session takes as much.
MAX_HELD_CHARS = 40_000
# With auto_mode a message is a sentence, which some clients send without the space behind it.
_SENTENCE_END = re.compile(r"[.!?…。！？]['\"”’»」』)\]]*\s*$")
# Scripts that put no space between sentences: from CJK radicals on, without Hangul.
_SPACELESS = re.compile(r"[\u2e80-\uabff\uf900-\uffef]$")


class _Generation(Struct):
    chunk_length_schedule: list[Annotated[float, Meta(ge=0)]] | None = None


class _Message(Struct):
    """Any message of a client. What is not here is ignored."""

    text: str | None = None
    context_id: str | None = None
    context_id_too: str | None = spelled(default=None, name="contextId")
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    voice_settings: VoiceSettings | None = None
    generation_config: _Generation | None = None
    authorization: str | None = None
    xi_api_key: str | None = None
    xi_api_key_too: str | None = spelled(default=None, name="xi-api-key")


@dataclass(slots=True)
class _Context:
    """From its first message to its `isFinal`."""

    ctx: str  # the session's name for it
    name: str  # the client's
    asked: _Message  # that has its settings
    times: CharacterTimes
    touched: float  # when the client last spoke of it
    is_started: bool = False  # the session knows of it: it has something to say
    is_closed: bool = False  # no more text comes
    is_cancelled: bool = False
    said_at: float = 0.0  # the last text
    is_flushed: bool = False  # the last text was, with itself
    is_bare: bool = False  # a flush without text came behind it
    ends_with: str = ""  # the last character of its text
    clock_ms: float = 0.0  # where a client is that adds up the times it was told
    tag: str = field(default="")  # its name in every frame, as JSON
    # An earlier one of the same name that is still spoken: their audio could not be told apart.
    behind: _Context | None = None
    held: list[Step] = field(default_factory=list)  # for the session, once that one is over
    held_chars: int = 0


class _Socket(ElevenLabs, SocketDialect):
    """What both have in common."""

    takes_key_in_band = True

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        query = request.query
        house.names.model(query.get("model_id"))
        self._format = output_format(query.get("output_format") or DEFAULT_FORMAT)
        if self._format.container == "wav":
            raise UnsupportedFormatError("output_format: no wav on a WebSocket")
        self._language = language(query.get("language_code"), house)
        self._seed = house.seed(_number(query, "seed"))
        timeout_s = _number(query, "inactivity_timeout")
        self._timeout_s = min(max(1.0, timeout_s or INACTIVITY_S), MAX_INACTIVITY_S)
        self._is_auto = query.get("auto_mode", "").lower() == "true"
        headers = ("xi-api-key", "x-api-key", "authorization")
        self._takes_key = not any(map(request.headers.get, headers)) and not self.keys(request)
        self._contexts: dict[str, _Context] = {}  # by the session's name
        self._first: _Message | None = None  # whose settings hold for all

    # --- what the client says -------------------------------------------------------------------

    def _read(self, data: bytes) -> tuple[_Message, list[Step]]:
        """A message; of the first one, the key it shows, if there was none before."""
        asked = reading.decode(data, _Message)
        key = asked.xi_api_key_too or asked.xi_api_key or bare_token(asked.authorization)
        steps: list[Step] = [Auth(token=key)] if self._takes_key and key else []
        self._takes_key = False
        if self._first is None:
            self._first = asked
        return asked, steps

    def _open(self, ctx: str, name: str, asked: _Message, now: float) -> _Context:
        tag = reading.encode(name)
        context = _Context(
            ctx=ctx,
            name=name,
            asked=asked,
            # Told anew when the session has started it, and its rate is known.
            times=CharacterTimes(1, is_exact=True),
            touched=now,
            tag=f',"contextId":{tag},"context_id":{tag}',
        )
        self._contexts[ctx] = context
        return context

    def _say(self, context: _Context, text: str, flush: bool, now: float) -> list[Step]:
        """More text for a context, or a flush, or nothing but a sign of life."""
        context.touched = now
        if not text.strip() and not context.is_started:
            return [Ping()]
        steps: list[Step] = []
        if not context.is_started:
            context.is_started = True
            steps.append(self._start(context))
        if text.strip():
            context.said_at, context.is_flushed, context.is_bare = now, flush, False
        elif flush:
            context.is_bare = True
        if not text:
            return [*steps, Flush(ctx=context.ctx) if flush else Ping()]
        if self._is_auto:
            text = _joint(context.ends_with, text) + text
            if _SENTENCE_END.search(text):
                flush = context.is_flushed = True
        context.ends_with = text[-1]
        return [*steps, Text(ctx=context.ctx, text=text, flush=flush)]

    def _start(self, context: _Context) -> Start:
        first = self._first or context.asked
        settings = context.asked.voice_settings or first.voice_settings or VoiceSettings()
        generation = context.asked.generation_config or first.generation_config or _Generation()
        schedule = generation.chunk_length_schedule
        least = min(max(1, int(schedule[0])), 500) if schedule else None
        return Start(
            ctx=context.ctx,
            # Looked up anew: sockets stay open for hours, and voices come and go.
            voice=self.house.names.voice(self.request.params.get("voice"), or_default=True),
            language=self._language,
            speed=self.house.speed(settings.speed),
            seed=self._seed,
            format=self._format,
            chunking=None if least is None else Chunking(min_chars=least),
        )

    def _finish(self, context: _Context) -> list[Step]:
        """No more text comes; what there is, is spoken."""
        context.is_closed = True
        return [End(ctx=context.ctx)] if context.is_started else self._ended(context)

    # --- what the session says ------------------------------------------------------------------

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SocketDialect`."""
        if isinstance(message, Error):
            return self._failed(message)
        context = self._contexts.get(getattr(message, "ctx", ""))
        if context is None:
            return ()
        match message:
            case Started():
                rate_hz = message.format.sample_rate
                context.times = CharacterTimes(rate_hz, is_exact=knows_words(self.house))
            case SegmentStarted():
                context.times.begin(message)
            case Marks():
                context.times.learn(message)
            case Audio():
                return (self._audio(context, message.data, context.times.hear(message)),)
            case Done():
                return [*self._last_words(context, message), *self._ended(context, message)]
            case _:
                pass
        return ()

    def _last_words(self, context: _Context, done: Done) -> list[Step]:
        """What comes before the end itself. An error was told before."""
        if done.reason in ("expired", "shutdown"):
            return [self._error("shutting_down", f"it was ended: {done.reason}", context)]
        rest = context.times.rest() if done.reason == "completed" else None
        return [] if rest is None else [self._audio(context, b"", rest)]

    def _audio(self, context: _Context, data: bytes, heard: Heard | None) -> str:
        times = "null" if heard is None else reading.encode(_alignment(context, heard))
        return (
            f'{{"audio":"{base64.b64encode(data).decode()}","isFinal":null,'
            f'"alignment":{times},"normalizedAlignment":{times}{context.tag}}}'
        )

    def _failed(self, message: Error) -> Steps:
        context = self._contexts.get(message.ctx or "")
        return (self._error(message.code, message.message, context),)

    def _error(self, code: str, words: str, context: _Context | None = None) -> str:
        fields = {"message": words, "error": status_word(code), "code": self._close_code(code)}
        tag = "" if context is None else context.tag
        return reading.encode(fields)[:-1] + tag + "}"

    def _close_code(self, code: str) -> int:
        return max(self.close_code(code), POLICY_VIOLATION)

    def _ended(self, context: _Context, done: Done | None = None) -> list[Step]:
        """It has had its last word."""
        raise NotImplementedError

    def _final(self, context: _Context) -> str:
        tag = context.tag
        return (
            '{"audio":null,"isFinal":true,"is_final":true,'
            f'"alignment":null,"normalizedAlignment":null{tag}}}'
        )


class MultiStream(_Socket):
    """`/v1/text-to-speech/{voice}/multi-stream-input`: many contexts, one voice and format."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._open_ones: dict[str, _Context] = {}  # that take text, by the client's name
        self._opened = 0
        self._is_closing = False

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        asked, steps = self._read(data)
        if self._is_closing:
            return steps
        try:
            return [*steps, *self._obey(asked, now)]
        finally:
            self._wait()

    def _obey(self, asked: _Message, now: float) -> Sequence[Step]:
        if asked.close_socket:
            return self._close_socket()
        shown = asked.context_id or asked.context_id_too
        name, text = shown or _DEFAULT_CONTEXT, asked.text or ""
        if asked.close_context:
            return self._close(name, now)
        context = self._open_ones.get(name)
        if context is not None:
            if not text and shown is None:
                self._touch_all(now)
            return _in_turn(context, self._say(context, text, bool(asked.flush), now))
        if not text:  # a sign of life of the socket, or a flush of what has crossed its end
            if shown is None:
                self._touch_all(now)
            return [Ping()]
        context = self._open(self._free_name(name), name, asked, now)
        if len(self._contexts) > MAX_CONTEXTS:
            words = f"at most {MAX_CONTEXTS} contexts are open at the same time"
            return [self._error("too_many_contexts", words, context), *self._ended(context)]
        context.behind = next(reversed(self._draining(name)), None)
        self._open_ones[name] = context
        return _in_turn(context, self._say(context, text, bool(asked.flush), now))

    def _free_name(self, name: str) -> str:
        """The client's own name where a session takes it: records and logs have it."""
        self._opened += 1
        if name in self._contexts or len(name) > _MAX_NAME_CHARS or not name.isprintable():
            printable = "".join(filter(str.isprintable, name))[:_MAX_NAME_CHARS]
            return f"{printable}#{self._opened}"
        return name

    def _touch_all(self, now: float) -> None:
        for context in self._open_ones.values():
            context.touched = now

    def _close(self, name: str, now: float) -> Sequence[Step]:
        context = self._open_ones.pop(name, None)
        if context is None:
            return self._silence(name)
        if context.is_started and _is_interruption(context, now):
            if context.behind is not None:  # of all that is to be heard under this name
                return [*self._silence(name), *self._ended(context)]
            context.is_closed = True
            return _cancel(context)
        return _in_turn(context, self._finish(context))

    def _draining(self, name: str) -> list[_Context]:
        return [each for each in self._contexts.values() if each.name == name and each.is_closed]

    def _silence(self, name: str) -> list[Step]:
        """Stop what is closed and still spoken under a name, or waits to be."""
        steps: list[Step] = []
        for each in reversed(self._draining(name)):
            steps += _cancel(each) if each.behind is None else self._ended(each)
        return steps

    def _close_socket(self) -> Sequence[Step]:
        self._is_closing = True
        steps = [
            step
            for each in list(self._open_ones.values())
            for step in _in_turn(each, self._finish(each))
        ]
        self._open_ones.clear()
        return steps if self._contexts else [*steps, Hangup()]

    def _ended(self, context: _Context, done: Done | None = None) -> list[Step]:
        del self._contexts[context.ctx]
        if self._open_ones.get(context.name) is context:
            del self._open_ones[context.name]
        self._wait()
        last: list[Step] = [Hangup()] if self._is_closing and not self._contexts and done else []
        for each in self._contexts.values():
            if each.behind is context:
                each.behind = context.behind
                last = [*each.held] if each.behind is None else []
        return [self._final(context), *last]

    # --- inactivity -----------------------------------------------------------------------------

    def _wait(self) -> None:
        touched = [each.touched for each in self._open_ones.values()]
        self.deadline = min(touched) + self._timeout_s if touched and not self._is_closing else None

    def timer(self, now: float) -> Steps:
        """See `SocketDialect`: contexts nobody speaks of are closed, and spoken to their end."""
        late = [e for e in self._open_ones.values() if e.touched + self._timeout_s <= now]
        steps: list[Step] = []
        for context in late:
            del self._open_ones[context.name]
            steps += _in_turn(context, self._finish(context))
        self._wait()
        return steps


class SingleStream(_Socket):
    """`/v1/text-to-speech/{voice}/stream-input`: one utterance, and the socket is closed."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._is_late = False
        self._context: _Context | None = None  # from the first message

    def opened(self, now: float) -> Steps:
        """See `SocketDialect`."""
        self.deadline = now + self._timeout_s
        return ()

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        asked, steps = self._read(data)
        context = self._context
        if context is None:
            context = self._context = self._open("speech", "", asked, now)
            context.tag = ""
        if context.is_closed:
            return steps
        self.deadline = now + self._timeout_s
        if asked.text == "" or asked.close_socket:
            self.deadline = None
            return [*steps, *self._finish(context)]
        return [*steps, *self._say(context, asked.text or "", bool(asked.flush), now)]

    def timer(self, now: float) -> Steps:
        """See `SocketDialect`: what was said is spoken; then the client is told, and let go."""
        self.deadline, self._is_late = None, True
        context = self._context or self._open("speech", "", _Message(), now)
        return self._finish(context)

    def _ended(self, context: _Context, done: Done | None = None) -> list[Step]:
        self._contexts.pop(context.ctx, None)
        context.is_closed, self.deadline = True, None
        if done is not None and done.reason != "completed":
            code = done.code or "shutting_down"
            return [Hangup(self._close_code(code), status_word(code))]  # the error was told
        if self._is_late:
            words = (
                f"No text has come for {self._timeout_s:g} seconds, and the stream was ended. Send "
                'text in time, or "" at its end.'
            )
            fields = {"message": words, "error": "input_timeout_exceeded", "code": POLICY_VIOLATION}
            return [reading.encode(fields), Hangup(POLICY_VIOLATION, words)]
        return [self._final(context), Hangup()]


def _is_interruption(context: _Context, now: float) -> bool:
    """Whether `close_context` means that a listener has interrupted, and not that the text is over.

    Their service goes on with what was set to flush, and frameworks also close to interrupt.
    """
    if context.is_bare:
        return False
    return not context.is_flushed or now - context.said_at > BACK_TO_BACK_S


def _cancel(context: _Context) -> Sequence[Step]:
    if context.is_cancelled:
        return ()
    context.is_cancelled = True
    return (Cancel(ctx=context.ctx),)


def _in_turn(context: _Context, steps: Sequence[Step]) -> Sequence[Step]:
    """What an earlier context of the same name has to be over for is kept."""
    if context.behind is None:
        return steps
    kept = [step for step in steps if not isinstance(step, str | Ping)]
    size = sum(
        len(step.text) if isinstance(step, Text) else isinstance(step, Flush) for step in kept
    )
    if size and context.held_chars + size > MAX_HELD_CHARS:
        context.held += [step for step in kept if isinstance(step, Start)]
        error = TextBufferFullError("too much text waits for an earlier context of this name")
        error.ctx = context.ctx
        raise error
    context.held_chars += size
    context.held += kept
    return [step for step in steps if isinstance(step, str | Ping)] or [Ping()]


def _joint(before: str, text: str) -> str:
    """What has to stand between two messages that are sentences."""
    is_apart = not before or before.isspace() or text[0].isspace() or _SPACELESS.match(before)
    return "" if is_apart else " "


def _alignment(context: _Context, heard: Heard) -> dict[str, Any]:
    """Times of characters, counted from where the message's audio begins.

    Clients put messages behind one another by adding up how long their characters last. The space
    at a segment's end lasts until they are where the audio is.
    """
    starts = [max(0, round(each.start_ms - heard.at_ms)) for each in heard.characters]
    lasts = [
        max(0, round(each.end_ms - heard.at_ms) - start)
        for each, start in zip(heard.characters, starts, strict=True)
    ]
    if heard.is_end:
        starts[-1] = starts[-2] + lasts[-2] if len(starts) > 1 else 0
        lasts[-1] = max(0, round(heard.end_ms - context.clock_ms) - starts[-1])
    context.clock_ms += starts[-1] + lasts[-1]
    return {
        "chars": [each.char for each in heard.characters],
        "charStartTimesMs": starts,
        "charDurationsMs": lasts,
    }


def _number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number of the query.

    Raises:
        BadRequestError: It is none.
    """
    text = query.get(name)
    if not text:
        return None
    if not text.isdecimal() or len(text) > 20:
        raise BadRequestError(f"{name}: expected a whole number")
    return int(text)


_SPEECH = "/v1/text-to-speech/{voice}"

ROUTES = (
    Route("WS", _SPEECH + "/multi-stream-input", MultiStream),
    Route("WS", _SPEECH + "/stream-input", SingleStream),
)
