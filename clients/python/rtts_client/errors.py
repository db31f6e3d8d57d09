"""Every failure a caller can meet, one class each.

RttsError
├─ ConnectError         the server refused or could not be reached
├─ ConnectionLostError  the socket is gone and could not be resumed
└─ ContextFailedError   one context failed; the connection goes on
└─ SlowReaderError  its events were not read, so the client stopped it
"""

from __future__ import annotations

from rtts_client.messages import Done


class RttsError(Exception):
    """Base of the client's errors.

    Attributes:
        code: A stable word; the server's error codes are in its protocol page.
        retry_after_s: Seconds after which trying again is worth it, where known.
    """

    def __init__(self, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class ConnectError(RttsError):
    """The connection could not be made.

    Attributes:
        status: HTTP status of the refusal; None when nobody answered.
    """

    def __init__(
        self,
        code: str,
        message: str,
        retry_after_s: float | None = None,
        *,
        status: int | None = None,
    ) -> None:
        super().__init__(code, message, retry_after_s)
        self.status = status


class ConnectionLostError(RttsError):
    """The connection ended; `code` says why where the server did."""


class ContextFailedError(RttsError):
    """A context ended by failing, expiring or the server's shutdown.

    Attributes:
        done: The server's last word on it; None where there was none.
    """

    def __init__(
        self,
        code: str,
        message: str,
        retry_after_s: float | None = None,
        *,
        done: Done | None = None,
    ) -> None:
        super().__init__(code, message, retry_after_s)
        self.done = done


class SlowReaderError(ContextFailedError):
    """More audio waited to be read than the context may hold, so it was cancelled."""
