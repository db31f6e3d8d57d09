"""ElevenLabs' text-to-speech API over HTTP, and what its WebSockets share with it.

Source: https://elevenlabs.io/docs/api-reference (2026) and the types of the SDKs 2.7x. The sockets
are in `elevenlabs_sockets`. What differs and why is in `docs/protocol/elevenlabs.md`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from rtts.audio.formats import resolve_format
from rtts.engine.interface import WordTimings
from rtts.errors import UnsupportedFormatError, UnsupportedLanguageError
from rtts.protocol import reading
from rtts.protocol.character_times import Character, CharacterTimes, Heard
from rtts.protocol.dialect import (
    Dialect,
    Hangup,
    Head,
    House,
    Reply,
    Request,
    Route,
    SpeechDialect,
    Steps,
    ending,
    status_of,
)
from rtts.protocol.events import (
    AnyClientMessage,
    AnyServerMessage,
    Audio,
    Done,
    Error,
    Format,
    Marks,
    SegmentStarted,
    Start,
    Started,
    Text,
)

DEFAULT_FORMAT = "mp3_44100_128"
_CTX = "speech"
_TYPES = {
    "pcm": "audio/pcm",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
    "ulaw": "audio/basic",
    "alaw": "audio/x-alaw-basic",
}
# Their words for what went wrong, where they have one.
_STATUSES = {
    "unauthorized": "invalid_api_key",
    "auth_timeout": "invalid_api_key",
    "unknown_voice": "voice_not_found",
    "text_too_long": "max_character_limit_exceeded",
    "unsupported_format": "output_format_not_allowed",
    "too_many_contexts": "max_active_conversations",
    "overloaded": "system_busy",
    "rate_limited": "too_many_concurrent_requests",
}


class VoiceSettings(Struct):
    """What of their settings there is here. The rest is ignored."""

    speed: float | None = None


class _Speech(Struct):
    """The request's body. What is not here is ignored."""

    text: Annotated[str, Meta(min_length=1)]
    model_id: str | None = None
    language_code: str | None = None
    voice_settings: VoiceSettings | None = None
    seed: int | None = None
    output_format: str | None = None  # belongs into the query


class ElevenLabs(Dialect):
    """Keys and errors of the API."""

    name: ClassVar[str] = "elevenlabs"

    @classmethod
    def keys(cls, request: Request) -> Sequence[str]:
        """See `Dialect`. Browsers cannot set headers."""
        shown = [request.query.get("single_use_token"), request.query.get("xi-api-key")]
        shown.append(bare_token(request.query.get("authorization")))
        return [key for key in shown if key]

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """See `Dialect`."""
        detail = {"status": status_word(error.code), "message": error.message}
        # Their SDKs try again after any 5xx, which helps nobody where the engine cannot do a thing.
        status = 400 if error.code == "unsupported" else status_of(error)
        return Reply(status=status, body=msgspec.json.encode({"detail": detail}))


def bare_token(authorization: str | None) -> str:
    """The token of an `authorization` field, which may be written with its scheme."""
    token = (authorization or "").strip()
    return token.partition(" ")[2].strip() if token.lower().startswith("bearer ") else token


def status_word(code: str) -> str:
    """Their word for an error code of ours, which is ours where they have none."""
    return _STATUSES.get(code, code)


def output_format(name: str) -> Format:
    """What a name like "mp3_44100_128" asks for.

    Raises:
        UnsupportedFormatError: There is no such format, or this server cannot make it.
    """
    kind, _, rest = name.partition("_")
    rate, _, kbps = rest.partition("_")
    numbers = rate.isdecimal() and (kbps.isdecimal() if kind in ("mp3", "opus") else not kbps)
    if kind not in _TYPES or not numbers or len(rest) > 12:
        raise UnsupportedFormatError(f"output_format: {name[:64]!r} is not known")
    form = _format(kind, int(rate), 1000 * int(kbps or 0))
    try:
        resolve_format(form.codec, form.container, form.sample_rate, form.bitrate)
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(f"output_format: {error.message}") from None
    return form


def _format(kind: str, rate_hz: int, bitrate: int) -> Format:
    match kind:
        case "mp3":
            return Format(codec="mp3", sample_rate=rate_hz, bitrate=bitrate)
        case "opus":  # decoders run at 48 kHz, whatever it was encoded from
            if rate_hz != 48_000:
                raise UnsupportedFormatError("output_format: opus is opus_48000_*")
            return Format(codec="opus", container="ogg", bitrate=bitrate)
        case "ulaw":
            return Format(codec="mulaw", sample_rate=rate_hz)
        case "alaw":
            return Format(codec="alaw", sample_rate=rate_hz)
        case "wav":
            return Format(codec="pcm_s16le", container="wav", sample_rate=rate_hz)
        case _:
            return Format(codec="pcm_s16le", sample_rate=rate_hz)


def language(code: str | None, house: House) -> str | None:
    """The language to ask the session for.

    Raises:
        UnsupportedLanguageError: No voice here speaks it.
    """
    if not code:
        return None
    if code.partition("-")[0].lower() not in house.capabilities.languages:
        known = ", ".join(house.capabilities.languages)
        raise UnsupportedLanguageError(f"language_code: {code[:32]!r}; the voices speak {known}")
    return code


def knows_words(house: House) -> bool:
    """Whether the engine says when its words are heard."""
    return house.capabilities.word_timings is WordTimings.EXACT


# --- speech over HTTP ----------------------------------------------------------------------------


class Speech(ElevenLabs, SpeechDialect):
    """`POST /v1/text-to-speech/{voice}` and `.../stream`: the body is the audio."""

    timestamps: ClassVar[bool] = False

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._asked = asked = reading.decode(request.body, _Speech)
        house.names.model(asked.model_id or request.query.get("model_id"))
        name = request.query.get("output_format") or asked.output_format or DEFAULT_FORMAT
        self._kind = name.partition("_")[0]
        self._format = output_format(name)
        self._voice = house.names.voice(request.params.get("voice"), or_default=True)
        self._language = language(asked.language_code or request.query.get("language_code"), house)

    def messages(self) -> Sequence[AnyClientMessage]:
        """See `SpeechDialect`."""
        asked = self._asked
        start = Start(
            ctx=_CTX,
            voice=self._voice,
            language=self._language,
            speed=self.house.speed((asked.voice_settings or VoiceSettings()).speed),
            seed=self.house.seed(asked.seed),
            format=self._format,
            timestamps="word" if self.timestamps else "none",
            max_lead_ms=0,
        )
        return [start, Text(ctx=_CTX, text=asked.text, end=True)]

    def head(self, started: Started) -> Head:
        """See `SpeechDialect`."""
        return Head(_TYPES[self._kind], (("request-id", self.house.new_id()),))

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SpeechDialect`."""
        if isinstance(message, Audio):
            return (message.data,)
        end = ending(message)
        return () if end is None else (end,)


class TimedStream(Speech):
    """`.../stream/with-timestamps`: lines of JSON, times from the beginning of the speech."""

    timestamps = True

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._times: CharacterTimes | None = None

    def head(self, started: Started) -> Head:
        """See `SpeechDialect`."""
        return Head("application/json", (("request-id", self.house.new_id()),))

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SpeechDialect`."""
        if isinstance(message, Started):
            rate_hz = message.format.sample_rate
            self._times = CharacterTimes(rate_hz, is_exact=knows_words(self.house))
        times = self._times
        if times is None:
            return ()
        match message:
            case SegmentStarted():
                times.begin(message)
            case Marks():
                times.learn(message)
            case Audio():
                return self._said(message.data, times.hear(message))
            case Done(reason="completed"):
                return (*self._rest(times.rest()), Hangup())
            case Done():
                return (Hangup(1011, message.reason),)
            case _:
                pass
        return ()

    def _said(self, data: bytes, heard: Heard | None) -> Steps:
        alignment = None if heard is None else in_seconds(heard.characters)
        return (_line(data, alignment) + "\n",)

    def _rest(self, heard: Heard | None) -> Steps:
        return () if heard is None else self._said(b"", heard)


class Timed(TimedStream):
    """`.../with-timestamps`: one JSON object, whose audio is written as it is made."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._opening = '{"audio_base64":"'
        self._carry = b""  # less than three bytes, which base64 takes at a time
        self._characters: list[Character] = []

    def _said(self, data: bytes, heard: Heard | None) -> Steps:
        self._characters += [] if heard is None else heard.characters
        data = self._carry + data
        whole = len(data) - len(data) % 3
        self._carry = data[whole:]
        piece, self._opening = self._opening + base64.b64encode(data[:whole]).decode(), ""
        return (piece,) if piece else ()

    def _rest(self, heard: Heard | None) -> Steps:
        pieces = [*self._said(b"", heard), base64.b64encode(self._carry).decode()]
        if not self._asked.text[-1].isspace():
            del self._characters[-1:]  # the space behind the last segment
        times = reading.encode(in_seconds(self._characters))
        return (*pieces, f'","alignment":{times},"normalized_alignment":{times}}}')


def in_seconds(characters: Sequence[Character]) -> dict[str, Any]:
    """Times of characters in the words of their HTTP API."""
    return {
        "characters": [each.char for each in characters],
        "character_start_times_seconds": [round(each.start_ms / 1000, 3) for each in characters],
        "character_end_times_seconds": [round(each.end_ms / 1000, 3) for each in characters],
    }


def _line(data: bytes, alignment: dict[str, Any] | None) -> str:
    fields = {
        "audio_base64": base64.b64encode(data).decode(),
        "alignment": alignment,
        "normalized_alignment": alignment,
    }
    return reading.encode(fields)


_SPEECH = "/v1/text-to-speech/{voice}"

ROUTES = (
    Route("POST", _SPEECH, Speech),
    Route("POST", _SPEECH + "/stream", Speech),
    Route("POST", _SPEECH + "/with-timestamps", Timed),
    Route("POST", _SPEECH + "/stream/with-timestamps", TimedStream),
)
