"""Whether the server takes new sessions, and if not, why and until when."""

from __future__ import annotations

from rtts.errors import EngineDeadError, OverloadedError, RttsError, ShuttingDownError
from rtts.session import Service

# Loading takes seconds to a minute; a client that asks each second finds out soon enough.
LOADING_RETRY_S = 1.0


class Readiness:
    """Reads the service's state.

    Owner: event loop.

    Attributes:
        has_failed: The engine is down (it was up, or could not start).
    """

    def __init__(self, service: Service) -> None:
        self.has_failed = False
        self._service = service

    @property
    def reasons(self) -> list[str]:
        """Why not, in words for machines: draining, engine_down, loading, prewarming. Or none."""
        service, reasons = self._service, []
        if service.is_draining:
            reasons.append("draining")
        if self.has_failed:
            reasons.append("engine_down")
        elif not service.is_engine_up:
            reasons.append("loading")
        elif not service.is_ready:
            reasons.append("prewarming")
        return reasons

    def refusal(self, now: float) -> RttsError | None:
        """What to tell a client that wants a session now; None when it can have one."""
        reasons = self.reasons
        if not reasons:
            return None
        if reasons[0] == "draining":
            return ShuttingDownError("the server is shutting down", retry_after_s=LOADING_RETRY_S)
        if reasons[0] == "engine_down":
            wait_s = max(LOADING_RETRY_S, self._service.restart_at - now)
            return EngineDeadError("the speech engine is restarting", retry_after_s=wait_s)
        return OverloadedError(
            f"the server is not ready yet: {reasons[0]}", retry_after_s=LOADING_RETRY_S
        )
