"""The error taxonomy: every failure a client, an operator or the engine can cause has one class here.

An error is raised once, where it is known, and translated to the wire once, in the dialect
(`rtts.protocol.native` holds close codes and HTTP statuses). This module knows nothing about
sockets, HTTP or JSON.

    RttsError
    ├─ ProtocolError       the client broke the dialect
    ├─ AuthError           who the client is, or where it comes from, is not accepted
    ├─ CapacityError       retryable: a limit was reached
    ├─ UnsupportedError    this engine cannot do it, whoever asks
    ├─ SlowConsumerError   the client does not take what it asked for
    ├─ EngineError         speech could not be made
    │   ├─ UtteranceError  one utterance failed, the engine goes on
    │   └─ EngineDeadError every utterance of the engine failed; its host restarts it
    └─ ConfigError         before ready only: names the setting
"""

from __future__ import annotations

from typing import ClassVar


class RttsError(Exception):
    """Base of everything rtts raises on purpose.

    Attributes:
        code: Stable word: on the wire, in logs and as a metric label.
        retryable: Whether the same request may succeed later.
        retry_after_s: Seconds after which a retry is worth it, where known.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class InternalError(RttsError):
    """Our own bug, reported as such."""


class ProtocolError(RttsError):
    """The client broke the dialect.

    Attributes:
        ctx: The context the broken message names, where that could be read.
        ref: The `id` of the broken message, where it could be read.
        message_type: Its type, where it could be read.
    """

    code = "bad_request"
    ctx: str | None = None
    ref: str | None = None
    message_type: str | None = None


class MalformedJsonError(ProtocolError):
    """A message that is not JSON, or not a JSON object."""

    code = "bad_json"


class BadRequestError(ProtocolError):
    """A field is missing, of the wrong type, or out of range."""

    code = "bad_request"


class UnknownTypeError(ProtocolError):
    """A message type this version does not know."""

    code = "unknown_type"


class UnknownContextError(ProtocolError):
    """A context that was never started, or that is finished."""

    code = "unknown_ctx"


class ContextExistsError(ProtocolError):
    """`start` for a context that is still running."""

    code = "ctx_exists"


class UnknownVoiceError(ProtocolError):
    """A voice the engine does not have."""

    code = "unknown_voice"


class UnsupportedFormatError(ProtocolError):
    """An audio format the server cannot make."""

    code = "unsupported_format"


class UnsupportedLanguageError(ProtocolError):
    """A language the chosen voice cannot speak."""

    code = "unsupported_language"


class TextTooLongError(ProtocolError):
    """One message carries more text than a context may buffer."""

    code = "text_too_long"


class TextBufferFullError(ProtocolError):
    """Text arrives faster than it is spoken and the context's buffer is full."""

    code = "text_buffer_full"


class MessageTooBigError(ProtocolError):
    """A message over the byte limit."""

    code = "message_too_big"


class ResumeFailedError(ProtocolError):
    """A resume token that is wrong or expired."""

    code = "resume_failed"


class AuthError(RttsError):
    """No valid API key."""

    code = "unauthorized"


class AuthTimeoutError(AuthError):
    """The credentials did not arrive in time."""

    code = "auth_timeout"


class ForbiddenOriginError(AuthError):
    """A browser page of an origin that is not allowed."""

    code = "forbidden_origin"


class CapacityError(RttsError):
    """A limit was reached; try again after `retry_after_s`."""

    code = "overloaded"
    retryable = True


class OverloadedError(CapacityError):
    """The predicted wait for the first audio is over the limit."""

    code = "overloaded"


class TooManyContextsError(CapacityError):
    """The socket has as many contexts as it may."""

    code = "too_many_contexts"


class RateLimitedError(CapacityError):
    """Messages arrive faster than allowed."""

    code = "rate_limited"


class ShuttingDownError(CapacityError):
    """The server is draining."""

    code = "shutting_down"


class IdleTimeoutError(RttsError):
    """Nothing happened for too long."""

    code = "idle_timeout"


class UnsupportedError(RttsError):
    """Something this engine cannot do, whoever asks."""

    code = "unsupported"


class SlowConsumerError(RttsError):
    """The client did not take its audio for too long."""

    code = "slow_consumer"


class SessionReplacedError(RttsError):
    """Another socket resumed this session."""

    code = "session_replaced"


class EngineError(RttsError):
    """Speech could not be made."""

    code = "internal"


class UtteranceError(EngineError):
    """One utterance failed; the engine goes on."""

    code = "utterance_failed"


class EngineDeadError(EngineError):
    """The engine died; all its utterances failed. Its host restarts it."""

    code = "engine_dead"
    retryable = True


class ConfigError(RttsError):
    """A setting is wrong. The message names the setting, where it came from and what is allowed."""

    code = "bad_config"
