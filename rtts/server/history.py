"""The last quarter of an hour, second by second, and the last requests, for pages that open late.

A point is what happened in one second. Latencies are counted in the 2 % buckets of
`rtts.metrics`, so that a page finds the quantiles of any stretch by adding points. Bounded: points
are kept as encoded bytes. Knows nothing about sockets and reads no server.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec

from rtts.advice import Window
from rtts.metrics import bucket_of
from rtts.session import ClientReport, UtteranceRecord

MAX_POINTS = 900
MAX_REQUESTS = 100
# Verdicts kept for clients that report after their context: at 1,000 contexts a minute, 30 s.
MAX_VERDICTS = 512
WINDOW_S = 60
# What a client's later reports add to, see `ClientReport`.
_GROWING = ("client_underruns", "client_stalled_ms")

Message = dict[str, Any]


class Second:
    """What happened in one second."""

    __slots__ = (
        *("audio_s", "busy_s", "client_first_packet", "client_first_sound", "client_reports"),
        *("client_stalled_s", "client_underruns", "cold", "dry_players", "errors", "hits"),
        *("measured", "misses", "outcomes", "slow_texts", "stage_s", "stalled", "stalled_s"),
        "stalls",
    )

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.stage_s: defaultdict[str, float] = defaultdict(float)
        self.client_first_packet: Counter[int] = Counter()
        self.client_first_sound: Counter[int] = Counter()
        self.measured = self.hits = self.cold = self.slow_texts = 0
        self.stalls = self.stalled = 0
        self.client_reports = self.client_underruns = self.dry_players = 0
        self.audio_s = self.busy_s = self.stalled_s = self.client_stalled_s = 0.0

    def fields(self) -> Message:
        """What is not zero, in the names of the feed."""
        fields: Message = {
            "outcomes": dict(self.outcomes),
            "misses": dict(self.misses),
            "errors": dict(self.errors),
            "stages_ms": {name: round(1000 * s, 2) for name, s in self.stage_s.items()},
            "client_first_packet": dict(self.client_first_packet),
            "client_first_sound": dict(self.client_first_sound),
            "measured": self.measured,
            "hits": self.hits,
            "cold": self.cold,
            "audio_s": round(self.audio_s, 3),
            "busy_s": round(self.busy_s, 4),
            "stalls": self.stalls,
            "stalled_ms": round(1000 * self.stalled_s, 1),
            "client_reports": self.client_reports,
            "client_underruns": self.client_underruns,
            "client_stalled_ms": round(1000 * self.client_stalled_s, 1),
        }
        return {name: value for name, value in fields.items() if value}


class History:
    """Takes records, and closes a point each second.

    Owner: event loop.
    """

    def __init__(self) -> None:
        self._second = Second()
        self._window: deque[Second] = deque(maxlen=WINDOW_S)
        self._points: deque[bytes] = deque(maxlen=MAX_POINTS)
        self._requests: deque[Message] = deque(maxlen=MAX_REQUESTS)
        self._verdicts: OrderedDict[tuple[str, str], tuple[float, bool, Message]] = OrderedDict()

    def take(self, record: UtteranceRecord, message: Message) -> None:
        """Count a finished context.

        Args:
            message: As it is published.
        """
        second = self._second
        second.outcomes[record.reason] += 1
        second.cold += bool(record.segments) and not record.voice_cached
        second.stalls += record.stalls
        second.stalled += record.stalls > 0
        second.stalled_s += record.stalled_s
        if record.rtf is not None:
            second.audio_s += record.audio_s
            second.busy_s += record.busy_s
        if record.first_packet_s is not None:
            self._take_first_packet(record)
        self._requests.append(message)
        key = (record.session, record.ctx)
        self._verdicts[key] = (record.budget_s, record.within_budget is True, message)
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)
        self._take_client(
            record.client_first_packet_s,
            record.client_first_sound_s,
            record.client_underruns,
            record.client_stalled_s,
        )
        if "client_late" in message:
            second.misses["client"] += 1

    def _take_first_packet(self, record: UtteranceRecord) -> None:
        second = self._second
        second.measured += 1
        for stage, seconds in (*record.stages.items(), *record.parts.items()):
            second.stage_s[stage] += seconds
        if record.within_budget is False:
            second.misses[record.guilty_stage] += 1
        else:
            second.hits += 1
        if record.from_first_text_s is not None and record.first_packet_s is not None:
            waited_s = record.from_first_text_s - record.first_packet_s
            second.slow_texts += waited_s > record.budget_s

    def take_client(self, report: ClientReport, message: Message) -> bool:
        """Count what a client reported after its context ended.

        Returns:
            Whether it makes the context a miss: its first packet left within the budget and
            arrived after it, which was not known before.
        """
        known = self._verdicts.get((report.session, report.ctx))
        first_packet_s = report.first_packet_s
        has_reported = known is not None and any(name.startswith("client_") for name in known[2])
        is_dry = known is not None and bool(known[2].get("client_underruns"))
        self._take_client(
            *(first_packet_s, report.first_sound_s, report.underruns, report.stalled_s),
            is_new=not has_reported,
            is_dry=not is_dry,
        )
        if known is None:
            return False
        budget_s, is_hit, request = known
        is_late = "client_late" not in request and is_late_at_client(
            is_hit, budget_s, first_packet_s
        )
        if is_late:
            self._second.misses["client"] += 1
            request["client_late"] = True
        for name in message:
            if name in _GROWING:
                request[name] = request.get(name, 0) + message[name]
            elif name.startswith("client_"):
                request[name] = message[name]
        return is_late

    def _take_client(
        self,
        first_packet_s: float | None,
        first_sound_s: float | None,
        underruns: int | None,
        stalled_s: float | None,
        *,
        is_new: bool = True,
        is_dry: bool = True,
    ) -> None:
        """Count figures; the client's first of its context, and the first that say it ran dry."""
        second = self._second
        figures = (first_packet_s, first_sound_s, underruns, stalled_s)
        if all(figure is None for figure in figures):
            return
        second.client_reports += is_new
        if first_packet_s is not None:
            second.client_first_packet[bucket_of(first_packet_s)] += 1
        if first_sound_s is not None:
            second.client_first_sound[bucket_of(first_sound_s)] += 1
        second.client_underruns += underruns or 0
        second.dry_players += is_dry and bool(underruns)
        second.client_stalled_s += stalled_s or 0.0

    def close_second(self, errors: Mapping[str, int], gauges: Message) -> Message:
        """End the present second.

        Args:
            errors: By code, of this second.
            gauges: What is added to the point as it is.

        Returns:
            The point.
        """
        second, self._second = self._second, Second()
        second.errors.update(errors)
        self._window.append(second)
        point = {**gauges, **second.fields()}
        self._points.append(msgspec.json.encode(point))
        return point

    def forget_points(self) -> None:
        """Forget the points; the window and the requests stay."""
        self._points.clear()

    def window(self) -> Window:
        """The last minute, for advice."""
        misses: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for second in self._window:
            misses.update(second.misses)
            errors.update(second.errors)

        def total(name: str) -> int:
            return sum(getattr(second, name) for second in self._window)

        audio_s = sum(second.audio_s for second in self._window)
        busy_s = sum(second.busy_s for second in self._window)
        return Window(
            contexts=sum(second.outcomes.total() for second in self._window),
            measured=total("measured"),
            misses=dict(misses),
            cold=total("cold"),
            slow_texts=total("slow_texts"),
            stalled=total("stalled"),
            client_reports=total("client_reports"),
            client_underruns=total("dry_players"),
            rtf=busy_s / audio_s if audio_s else None,
            errors=dict(errors),
        )

    def message(self) -> Message:
        """Everything kept, as a message of the feed."""
        return {
            "type": "history",
            "points": [msgspec.Raw(point) for point in self._points],
            "requests": list(self._requests),
        }


def is_late_at_client(is_hit: bool, budget_s: float, first_packet_s: float | None) -> bool:
    """Whether a first packet left within its budget and, the client says, arrived after it."""
    return is_hit and first_packet_s is not None and first_packet_s > budget_s
