"""Deepgram's text-to-speech API: queries, errors, and `/v1/speak` and `/v2/speak` over HTTP.

Source: https://developers.deepgram.com/reference/text-to-speech (2026), the pages of its control
messages, and the types of the SDKs 7.17 (Python) and 5.13 (node). The WebSockets are
`rtts.protocol.deepgram_socket` and, in turns, `rtts.protocol.deepgram_flux`. What differs and why is
in `docs/protocol/deepgram.md`.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from msgspec import Struct

from rtts.audio.g711 import encode_alaw, encode_mulaw
from rtts.audio.wav import wav_header
from rtts.errors import BadRequestError, UnsupportedFormatError
from rtts.protocol import reading
from rtts.protocol.dialect import (
    Dialect,
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
    Codec,
    Error,
    Format,
    Start,
    Started,
    Text,
)

# A hosted voice: "aura-2-thalia-en", "flux-alexis-en". The last part is the language it speaks.
_HOSTED = re.compile(
    r"(?:aura(?:-2)?|flux)-[a-z0-9_]+-(?P<language>[a-z]{2,5})(?:-[a-z]{2})?", re.I
)
_ANY_LANGUAGE = "multi"
_HTTP_CTX = "speech"
SILENCE_MS = 100
SPEEDS = (0.7, 1.5)  # of version 1; version 2 has its own
FLUX_SPEEDS = (0.5, 1.5)

_ERR_CODES = {
    "bad_json": "INVALID_JSON",
    "bad_request": "INVALID_QUERY_PARAMETER",
    "unknown_voice": "INVALID_QUERY_PARAMETER",
    "unsupported_language": "INVALID_QUERY_PARAMETER",
    "unsupported_format": "UNSUPPORTED_AUDIO_FORMAT",
    "unauthorized": "INVALID_AUTH",
    "forbidden_origin": "FORBIDDEN",
    "message_too_big": "PAYLOAD_TOO_LARGE",
    "text_too_long": "INPUT_TEXT_TOO_LONG",
    "rate_limited": "TOO_MANY_REQUESTS",
    "too_many_contexts": "TOO_MANY_REQUESTS",
}


class Deepgram(Dialect):
    """Keys and errors of the API."""

    name: ClassVar[str] = "deepgram"

    @classmethod
    def keys(cls, request: Request) -> Sequence[str]:
        """See `Dialect`. Browsers offer the subprotocols "token" and the key."""
        pairs = pairwise(request.subprotocols)
        return [key for scheme, key in pairs if scheme.lower() in ("token", "bearer")]

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """See `Dialect`. Clients that cannot read the body of a failed handshake read the header."""
        request_id = new_request_id()
        code = _ERR_CODES.get(error.code, error.code.upper())
        body = {"err_code": code, "err_msg": error.message, "request_id": request_id}
        headers = (
            ("content-type", "application/json"),
            ("dg-request-id", request_id),
            ("dg-error", "".join(c if " " <= c <= "~" else "?" for c in error.message)),
        )
        return Reply(status=status_of(error), body=reading.encode(body).encode(), headers=headers)


def new_request_id() -> str:
    """What answers and errors are called in their headers."""
    return str(uuid.uuid4())


# --- what a query asks for -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who speaks.

    Attributes:
        model: As the client named it, or as it is named here.
        voice: Of the engine.
        language: BCP 47 primary tag, or "auto".
    """

    model: str
    voice: str
    language: str


def speaker(query: Mapping[str, str], house: House) -> Speaker:
    """The voice that `model` stands for.

    Raises:
        UnknownVoiceError: It is no voice of this server and no name of a hosted one.
        UnsupportedLanguageError: Nobody here speaks the language that the hosted one speaks.
        BadRequestError: The operator's table says that it is another model.
    """
    model = query.get("model", "")
    house.names.model(model)
    hosted = _HOSTED.fullmatch(model)
    named = house.names.voice(model, or_default=hosted is not None)
    wanted = hosted["language"].lower() if hosted else _ANY_LANGUAGE
    voice, language = house.names.speaker(named, None if wanted == _ANY_LANGUAGE else wanted)
    return Speaker(model or voice, voice, language)


def model_id(name: str) -> str:
    """An id for a model, the same every time."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.rtts"))


def number(query: Mapping[str, str], name: str) -> float | None:
    """A number of the query; None where there is none.

    Raises:
        BadRequestError: It is something else.
    """
    text = query.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadRequestError(f"{name}: {text[:32]!r} is not a number")
    return value


def whole_number(query: Mapping[str, str], name: str) -> int | None:
    """The same for a count, which some clients write as a float."""
    value = number(query, name)
    if value is not None and value != int(value):
        raise BadRequestError(f"{name}: {value:g} is not a whole number")
    return None if value is None else int(value)


def speed(query: Mapping[str, str], limits: tuple[float, float], house: House) -> float | None:
    """The speed asked for, brought into the range of the engine.

    Raises:
        BadRequestError: It is outside the API's own.
    """
    value = number(query, "speed")
    if value is not None and not limits[0] <= value <= limits[1]:
        raise BadRequestError(f"speed: {value:g} is outside {limits[0]:g} to {limits[1]:g}")
    return house.speed(value)


@dataclass(frozen=True, slots=True)
class Coding:
    """How audio gets to the client.

    Attributes:
        format: What the session makes.
        transform: What is made of that here.
        header: What comes before the first audio.
        content_type: Over HTTP.
        silence: One sample of it.
        rate_hz: Samples a second.
    """

    format: Format
    content_type: str
    transform: Callable[[bytes], bytes] | None = None
    header: bytes = b""
    silence: bytes = b"\0\0"
    rate_hz: int = 24_000

    def code(self, data: bytes) -> bytes:
        """Audio of the session as audio of the API."""
        return data if self.transform is None else self.transform(data)

    def duration_ms(self, n_bytes: int) -> float:
        """Of raw samples."""
        return 1000 * n_bytes / (len(self.silence) * self.rate_hz)

    def some_silence(self) -> bytes:
        """Of raw samples: for clients that take a reply without audio for a failure."""
        return self.silence * (self.rate_hz * SILENCE_MS // 1000)


_PCM_RATES_HZ = (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_G711_RATES_HZ = (8000, 16_000)
_G711: dict[str, tuple[Codec, Callable[[bytes], bytes], bytes]] = {  # and its zero (ITU-T G.711)
    "mulaw": ("mulaw", encode_mulaw, b"\xff"),
    "alaw": ("alaw", encode_alaw, b"\xd5"),
}


def raw_coding(query: Mapping[str, str]) -> Coding:
    """Samples without a header, as on a WebSocket.

    Raises:
        UnsupportedFormatError: There are none of that encoding or rate.
    """
    encoding = query.get("encoding", "linear16").lower() or "linear16"
    if encoding != "linear16" and encoding not in _G711:
        raise UnsupportedFormatError(
            f"encoding: {encoding[:32]!r} is not streamed; linear16, mulaw and alaw are"
        )
    rate_hz = whole_number(query, "sample_rate") or (24_000 if encoding == "linear16" else 8000)
    rates_hz = _PCM_RATES_HZ if encoding == "linear16" else _G711_RATES_HZ
    if rate_hz not in rates_hz:
        known = ", ".join(map(str, rates_hz))
        raise UnsupportedFormatError(f"sample_rate: {rate_hz} Hz is not made; {known} are")
    pcm = Format(codec="pcm_s16le", sample_rate=rate_hz)
    if encoding == "linear16":
        return Coding(pcm, f"audio/l16;rate={rate_hz};channels=1", rate_hz=rate_hz)
    codec, encode, zero = _G711[encoding]
    content_type = f"audio/{'PCMU' if codec == 'mulaw' else 'PCMA'};rate={rate_hz};channels=1"
    if rate_hz == 8000:
        made = Format(codec=codec, sample_rate=rate_hz)
        return Coding(made, content_type, silence=zero, rate_hz=rate_hz)
    return Coding(pcm, content_type, encode, silence=zero, rate_hz=rate_hz)


def file_coding(query: Mapping[str, str]) -> Coding:
    """A file, as over HTTP; MP3 unless something else is asked for.

    Raises:
        UnsupportedFormatError: It is not made here.
    """
    encoding = query.get("encoding", "").lower() or "mp3"
    if encoding in ("flac", "aac"):
        raise UnsupportedFormatError(
            f"encoding: {encoding} is not made here; linear16, mulaw, alaw, mp3 and opus are"
        )
    container = query.get("container", "").lower()
    if encoding == "mp3":
        return _mp3(query, container)
    if encoding == "opus":
        return _opus(query, container)
    raw = raw_coding(query)
    if container == "none":
        return raw
    _check_container(encoding, container, "wav")
    header = wav_header(raw.rate_hz, coding="s16" if encoding == "linear16" else encoding)
    return replace(raw, content_type="audio/wav", header=header)


def _mp3(query: Mapping[str, str], container: str) -> Coding:
    _check_container("mp3", container, "none")
    rate_hz = whole_number(query, "sample_rate") or 22_050
    bit_rate = whole_number(query, "bit_rate") or 48_000
    return Coding(Format(codec="mp3", sample_rate=rate_hz, bitrate=bit_rate), "audio/mpeg")


def _opus(query: Mapping[str, str], container: str) -> Coding:
    _check_container("opus", container, "ogg")
    # The API allows 4,000 to 650,000; the ends mean "as little" and "as much as there is".
    bit_rate = min(max(whole_number(query, "bit_rate") or 12_000, 6000), 256_000)
    form = Format(codec="opus", container="ogg", bitrate=bit_rate)
    return Coding(form, "audio/ogg; codecs=opus")


def _check_container(encoding: str, container: str, only: str) -> None:
    if container not in ("", only):
        raise UnsupportedFormatError(
            f"container: {encoding} comes as {only}, not {container[:32]!r}"
        )


# --- what messages and answers have in common ----------------------------------------------------


class ClientText(Struct):
    """Any message of a client, as far as all have the same fields. What is not here is ignored."""

    type: str = ""
    text: str = ""


def dg_headers(request_id: str, who: Speaker) -> tuple[tuple[str, str], ...]:
    """Of every answer."""
    name = who.model if who.model.isascii() and who.model.isprintable() else who.voice
    return (
        ("dg-request-id", request_id),
        ("dg-model-name", name),
        ("dg-model-uuid", model_id(who.model)),
    )


def select_subprotocol(offered: Sequence[str]) -> str | None:
    """The scheme of the key that is offered, never the key; without one what is offered first."""
    schemes = [offer for offer in offered if offer.lower() in ("token", "bearer")]
    return next(iter(schemes or offered), None)


# --- HTTP ----------------------------------------------------------------------------------------


class _Body(Struct):
    text: str | None = None
    url: Any = None


class Speech(Deepgram, SpeechDialect):
    """`POST /v1/speak`: the body is the audio."""

    speeds: ClassVar[tuple[float, float]] = SPEEDS

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._speaker = speaker(request.query, house)
        self._coding = file_coding(request.query)
        self._speed = speed(request.query, self.speeds, house)
        if request.query.get("callback"):
            raise BadRequestError("callback: answers are not sent elsewhere")
        self._text = _text_of(request)
        self._is_first = True

    def messages(self) -> Sequence[AnyClientMessage]:
        """See `SpeechDialect`."""
        start = Start(
            ctx=_HTTP_CTX,
            voice=self._speaker.voice,
            language=self._speaker.language,
            speed=self._speed,
            format=self._coding.format,
            timestamps="none",
            max_lead_ms=0,
        )
        return [start, Text(ctx=_HTTP_CTX, text=self._text, end=True)]

    def head(self, started: Started) -> Head:
        """See `SpeechDialect`."""
        headers = dg_headers(new_request_id(), self._speaker)
        return Head(self._coding.content_type, (*headers, ("dg-char-count", str(len(self._text)))))

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SpeechDialect`."""
        if isinstance(message, Audio):
            header = self._coding.header if self._is_first else b""
            self._is_first = False
            return (header + self._coding.code(message.data),)
        end = ending(message)
        return () if end is None else (end,)


class FluxSpeech(Speech):
    """`POST /v2/speak`: the same, with its own limits."""

    speeds = FLUX_SPEEDS

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        check_expressivity(request.query)


def check_expressivity(query: Mapping[str, str]) -> None:
    """Nothing here has it; what is no value of it is refused all the same.

    Raises:
        BadRequestError: It is not a whole number from -2 to 2.
    """
    value = whole_number(query, "expressivity")
    if value is not None and not -2 <= value <= 2:
        raise BadRequestError(f"expressivity: {value} is outside -2 to 2")


def _text_of(request: Request) -> str:
    """The text of a body, which is JSON unless it says that it is the text."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/plain":
        try:
            text: str | None = request.body.decode("utf-8")
        except UnicodeDecodeError:
            raise BadRequestError("text: is not UTF-8") from None
    else:
        body = reading.decode(request.body, _Body)
        if body.url is not None:
            raise BadRequestError("url: texts are not fetched; send the text")
        text = body.text
    if not text:
        raise BadRequestError("text: is missing or empty")
    return text


ROUTES = (
    Route("POST", "/v1/speak", Speech),
    Route("POST", "/v2/speak", FluxSpeech),
)
