"""What all conversations of one server share: the engine's state as data, and admission.

The server updates it from engine events; sessions read it. It holds no engine and no socket.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace

from rtts.engine.interface import (
    Capabilities,
    EngineDown,
    EngineEvent,
    EngineLoad,
    EngineMembers,
    EngineReady,
    Voice,
)
from rtts.errors import EngineDeadError, OverloadedError, ShuttingDownError
from rtts.metrics import RollingLatency
from rtts.session.effort import OpusEffort

# Retry no sooner than this: a tighter loop of refused clients is load by itself.
MIN_RETRY_S = 0.25


class Service:
    """Shared state of a server's sessions.

    Owner: event loop.
    """

    def __init__(
        self, *, epoch_s: float, max_backlog_s: float = 2.0, effort: OpusEffort | None = None
    ) -> None:
        """Start with no engine.

        Args:
            epoch_s: Unix time at monotonic zero, so that wall time is `epoch_s + now`; set anew
                when the wall clock jumps.
            max_backlog_s: Predicted wait for first audio above which contexts are refused. Agent
                frameworks give up on a silent context after 10 s and retry a refusal at once.
            effort: How hard Opus tries; by default complexity 5 at the cost measured for it.
        """
        self.epoch_s = epoch_s
        self.max_backlog_s = max_backlog_s
        self.effort = effort or OpusEffort(5, 125e-6)
        self.capabilities: Capabilities | None = None  # set by the first EngineReady
        self.is_engine_up = False
        self.is_ready = False  # set by the server after prewarming
        self.is_draining = False  # set by the server on SIGTERM
        self.drain_deadline: float | None = None
        self.members: EngineMembers | None = None  # where the engine is several processes
        self.load = EngineLoad(0, 0.0, 0.0)
        self.restart_at = 0.0  # when a dead engine is expected back
        self.first_packet = RollingLatency()
        self.live_utterances = 0  # kept by sessions
        self._heard_until: list[float] = []  # a heap: ended utterances that are still played
        self.started_since_load = 0  # utterances the last EngineLoad could not know of
        self.rtf: float | None = None  # of recent utterances, each counting a tenth
        self._n_in_budget = 0
        self._n_measured = 0
        self._ids = itertools.count(1)
        self._offered: Capabilities | None = None  # what the engine itself said
        self._added: dict[str, Voice] = {}

    def add_voice(self, voice: Voice) -> None:
        """The engine has one more voice, and will have it again after a restart."""
        self._added[voice.id] = voice
        self._offer()

    def remove_voice(self, voice_id: str) -> None:
        """That voice is gone."""
        self._added.pop(voice_id, None)
        self._offer()

    def _offer(self) -> None:
        if self._offered is None:
            return
        voices = (*self._offered.voices, *self._added.values())
        default = self._offered.default_voice or (voices[0].id if voices else "")
        self.capabilities = replace(self._offered, voices=voices, default_voice=default)

    def next_utterance_id(self) -> int:
        """A number no other utterance of this process has."""
        return next(self._ids)

    def time_ms(self, now: float) -> int:
        """Unix time in milliseconds, for the wire."""
        return round(1000 * (self.epoch_s + now))

    def on_engine_event(self, event: EngineEvent, now: float) -> None:
        """Take what the engine says about itself."""
        if isinstance(event, EngineReady):
            self._offered = event.capabilities
            self._offer()
            self.is_engine_up = True
            self.load = EngineLoad(0, 0.0, 0.0)
            self.started_since_load = 0
        elif isinstance(event, EngineDown):
            self.is_engine_up = False
            self.is_ready = False
            self.restart_at = now + event.restart_in_s
        elif isinstance(event, EngineMembers) and self.capabilities is not None:
            self.members = event
            assert self._offered is not None, "it has said what it can do"
            self._offered = replace(
                self._offered, max_utterances=event.max_utterances, slots=event.slots
            )
            self._offer()
        elif isinstance(event, EngineLoad):
            self.load = event
            self.started_since_load = 0

    def utterance_started(self, now: float) -> None:
        """An utterance went to the engine."""
        self.live_utterances += 1
        self._follow_listeners(now)
        self.started_since_load += 1

    def utterance_ended(self, heard_until: float, now: float) -> None:
        """An utterance's session is through with it.

        Args:
            heard_until: When its listener will have heard what there is of it. An engine that is
                much faster than speech is through with a reply long before that, and the next
                listener's is as much work again.
        """
        self.live_utterances -= 1
        if heard_until > now:
            heapq.heappush(self._heard_until, heard_until)
        self._follow_listeners(now)

    def _follow_listeners(self, now: float) -> None:
        while self._heard_until and self._heard_until[0] <= now:
            heapq.heappop(self._heard_until)
        self.effort.follow(self.live_utterances + len(self._heard_until))

    def note_first_packet(self, latency_s: float, *, budget_s: float, now: float) -> None:
        """A context's first audio left."""
        self.first_packet.add(latency_s, now)
        self._n_measured += 1
        self._n_in_budget += latency_s <= budget_s

    def note_rtf(self, rtf: float) -> None:
        """An utterance's real-time factor is known."""
        self.rtf = rtf if self.rtf is None else self.rtf + (rtf - self.rtf) / 10

    @property
    def budget_hit_rate(self) -> float | None:
        """Share of contexts since the start whose first packet was inside their budget."""
        return self._n_in_budget / self._n_measured if self._n_measured else None

    def predicted_wait_s(self) -> float:
        """Seconds a new utterance would wait before the engine begins it."""
        return self.load.backlog_s + self.started_since_load * self.load.first_chunk_s

    def admit(self, now: float) -> None:
        """Check whether a new context can be served.

        Raises:
            ShuttingDownError: The server is draining.
            EngineDeadError: The engine is down; carries when it is expected back.
            OverloadedError: The predicted wait, or the number of utterances, is over its limit.
        """
        if self.is_draining:
            raise ShuttingDownError("the server is shutting down; connect to another one")
        self.check_capacity(now)
        wait_s = self.predicted_wait_s()
        if wait_s > self.max_backlog_s:
            raise OverloadedError(
                f"speech would begin only in {wait_s:.1f} s; the limit is {self.max_backlog_s:g} s",
                retry_after_s=max(MIN_RETRY_S, wait_s - self.max_backlog_s),
            )

    def check_capacity(self, now: float) -> None:
        """Check whether one more utterance can start.

        Raises:
            EngineDeadError: The engine is down.
            OverloadedError: The engine has as many utterances as it takes.
        """
        if not self.is_engine_up or self.capabilities is None:
            raise EngineDeadError(
                "the speech engine is restarting",
                retry_after_s=max(MIN_RETRY_S, self.restart_at - now),
            )
        if self.live_utterances >= self.capabilities.max_utterances:
            raise OverloadedError(
                f"all {self.capabilities.max_utterances} utterances of the engine are in use",
                retry_after_s=1.0,
            )
