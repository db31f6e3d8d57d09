"""What a dialect is: the words of somebody else's protocol for what a session does.

A dialect file translates, and nothing else. What a client sends becomes client messages of
`rtts.protocol.events`, what a session answers becomes frames or a response body, both as `Step`s that
the server carries out in order. It holds no socket and no session, reads no clock (time is `now`)
and decides nothing about keys, places or limits. `docs/protocol/dialects.md` says how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from rtts.engine.interface import Capabilities
from rtts.errors import ShuttingDownError
from rtts.protocol.error_table import close_code, http_status
from rtts.protocol.events import AnyClientMessage, AnyServerMessage, Done, Error, Started

# RFC 6455 section 7.4.1: what a hosted service answers who breaks its rules; the 44xx codes are
# those of rtts.v1, and clients of other protocols take them for something to retry.
POLICY_VIOLATION = 1008
_FIRST_OF_OURS = 4000


@dataclass(frozen=True, slots=True)
class Hangup:
    """End the exchange once everything before it was written.

    Attributes:
        code: WebSocket close code. Over HTTP 1000 ends the body, and anything else cuts it off, so
            that the client can tell.
        reason: For the close frame; at most 123 bytes of it are sent.
    """

    code: int = 1000
    reason: str = ""


#: A frame or a piece of body to the client, a message to the session, or the end.
Step = str | bytes | AnyClientMessage | Hangup
Steps = Iterable[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is known before the first message: a handshake, or a whole HTTP request.

    Attributes:
        method: "GET" of a handshake.
        path: Without the query.
        params: What stood in the places of the route's path, decoded.
        query: The last value of each name.
        headers: Lower-case names; of a repeated one the first.
        subprotocols: What a WebSocket client offers.
        body: Of an HTTP request.
    """

    method: str = "GET"
    path: str = "/"
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    subprotocols: Sequence[str] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP response that is known at once: a refusal, or a list."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response whose body is speech."""

    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


class Names(Protocol):
    """Foreign names for what this server has (`rtts.voices.aliases`)."""

    def voice(self, name: str | None, *, or_default: bool) -> str | None:
        """The engine's voice for a client's name; None is the server's default.

        Args:
            name: As the client wrote it; None or "" if it did not.
            or_default: What an unknown name means: the default voice, or an error.

        Raises:
            UnknownVoiceError: An unknown name, unless `or_default`.
        """

    def model(self, name: str | None) -> str:
        """The model a client's name stands for: the one there is.

        Raises:
            BadRequestError: The operator's table says that it stands for another one.
        """

    def speaker(self, voice: str | None, language: str | None) -> tuple[str, str]:
        """Who will speak, and in which language, for surfaces that say so before the first text.

        Args:
            voice: Of the engine; None is the default voice, or one that speaks `language`.
            language: BCP 47 tag or English name; None or "auto" leaves it to the text.

        Raises:
            UnsupportedLanguageError: The voice, or no voice at all, speaks that language.
        """

    @property
    def voices(self) -> Mapping[str, str]:
        """Names that are no voices of the engine, and the voice each of them is."""

    @property
    def models(self) -> Sequence[str]:
        """Names for the model, the engine's own first."""


@dataclass(slots=True, kw_only=True)
class House:
    """What a dialect may know of the server it speaks for; the server keeps it current.

    Attributes:
        capabilities: Of the engine.
        names: The alias table.
        new_id: Makes ids nobody can guess, of 16 hex digits.
        version: Of rtts.
    """

    capabilities: Capabilities
    names: Names
    new_id: Callable[[], str]
    version: str = ""

    @staticmethod
    def seed(asked: int | None) -> int | None:
        """A seed of any size and sign as one of ours; equal ones stay equal."""
        return None if asked is None else asked % 2**63

    def speed(self, asked: float | None) -> float | None:
        """The nearest speed to the asked one at which the engine stays intelligible.

        Foreign clients ask for more than most voices can do, and would take a refusal for an outage.
        """
        slowest, fastest = self.capabilities.speed_range
        return None if asked is None else min(max(asked, slowest), fastest)


class Dialect:
    """What dialects for sockets and for HTTP have in common.

    Attributes:
        name: In metrics and logs, lower case: "cartesia".
    """

    name: ClassVar[str]

    @classmethod
    def keys(cls, request: Request) -> Sequence[str]:
        """API keys the request shows in places of this surface only.

        The server looks by itself into Authorization (Bearer, Token), X-API-Key and xi-api-key.
        """
        del request
        return ()

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """How this surface says no, before anything was spoken; Retry-After is added to it."""
        raise NotImplementedError


class SocketDialect(Dialect):
    """One WebSocket of a client. Made at the handshake, from the request.

    A subclass's constructor takes `(request, house)` and may raise any `RttsError`: the handshake is
    then refused with `refusal`. `receive` may raise a `ProtocolError`: the session answers it with an
    `Error` (and ends the conversation after too many).

    Attributes:
        takes_key_in_band: A client without a key is let in and has to send one: the first step of
            what it says must then be `Auth`.
        headers: Of the response that upgrades the connection.
        deadline: When `timer` wants to be called; None for never.
    """

    takes_key_in_band: ClassVar[bool] = False

    def __init__(self, request: Request, house: House) -> None:
        self.request = request
        self.house = house
        self.headers: tuple[tuple[str, str], ...] = ()
        self.deadline: float | None = None

    @classmethod
    def subprotocol(cls, offered: Sequence[str]) -> str | None:
        """Which of the offered subprotocols to select; some clients fail unless one is."""
        del cls
        return offered[0] if offered else None

    def opened(self, now: float) -> Steps:
        """The client was let in: what it is told first."""
        del now
        return ()

    def receive(self, data: bytes, now: float) -> Steps:
        """A text frame came, valid UTF-8."""
        raise NotImplementedError

    def receive_binary(self, now: float) -> Steps:
        """A binary frame came (its bytes are gone); none of the protocols has any."""
        del now
        return (Hangup(1003, "text messages only"),)

    def send(self, message: AnyServerMessage) -> Steps:
        """The session says something: as frames, and whatever follows from it."""
        raise NotImplementedError

    def timer(self, now: float) -> Steps:
        """`deadline` has passed."""
        del now
        return ()

    def close_code(self, code: str) -> int:
        """The close code for an error code of `rtts.errors`; "" is a normal end.

        So is an idle socket's: what follows is a new connection, and not a mistake to report.
        """
        if code == "idle_timeout":
            return 1000
        ours = close_code(code)
        return POLICY_VIOLATION if ours >= _FIRST_OF_OURS else ours


class SpeechDialect(Dialect):
    """One HTTP request whose answer is speech. Made from the whole request.

    A subclass's constructor takes `(request, house)` and may raise any `RttsError`.
    """

    def __init__(self, request: Request, house: House) -> None:
        self.request = request
        self.house = house

    def messages(self) -> Sequence[AnyClientMessage]:
        """One context: its `Start` and its `Text`, which ends it."""
        raise NotImplementedError

    def head(self, started: Started) -> Head:
        """The response's head; asked for when the first piece of body exists."""
        raise NotImplementedError

    def send(self, message: AnyServerMessage) -> Steps:
        """The session says something: as pieces of body, or a `Hangup`.

        Before the first piece an `Error` becomes a `refusal` and does not come here.
        """
        raise NotImplementedError


def cut_short(done: Done) -> Error:
    """What to say of a context that ended with the server, where the dialect has no word for it."""
    words = "the server is shutting down, and this was not spoken to its end"
    return Error(ctx=done.ctx, code=ShuttingDownError.code, message=words, fatal=False)


def ending(message: AnyServerMessage) -> Hangup | None:
    """How a body ends that can only be cut off: at `Done`, well or not."""
    if not isinstance(message, Done):
        return None
    return Hangup() if message.reason == "completed" else Hangup(1011, message.reason)


@dataclass(frozen=True, slots=True)
class Listing:
    """A GET that lists something.

    Attributes:
        dialect: Whose keys and refusals it has.
        build: Makes the reply.
    """

    dialect: type[Dialect]
    build: Callable[[Request, House], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """Where a surface is found.

    Attributes:
        path: Literal but for `{name}`, which stands for one segment.
        method: "WS" is a WebSocket.
        surface: What answers there.
        meant: Says of a request's headers, lower-case names, whether it is meant for this surface;
            for a place that two services share.
    """

    method: str
    path: str
    surface: type[SocketDialect] | type[SpeechDialect] | Listing
    meant: Callable[[Mapping[str, str]], bool] | None = None


def status_of(error: Error) -> int:
    """The HTTP status of an error, as every surface uses it."""
    return http_status(error.code)
