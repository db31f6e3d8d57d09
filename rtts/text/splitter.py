"""Cuts text that is still being written into segments worth speaking.

The splitter is pure: text goes in as it comes, segments come out, and time exists only as the
seconds its caller mentions. Which cuts it makes depends on the text and on those seconds, never on
how the text was cut into messages. It takes time linear in the text and holds a bounded piece of
it, whatever the text is. What a mark means is `rtts.text.boundaries`' business, what is markup
`rtts.text.markup`'s; this module decides when to cut.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rtts.text.characters import prefix_of_weight
from rtts.text.cuts import best_cut, last_word_end
from rtts.text.languages import AUTO, KANA, LANGUAGES, Script, normalise_language
from rtts.text.marks import FINAL_MARKS, Horizon
from rtts.text.markup import Addresses, MarkupFilter
from rtts.text.reader import Found, Reader, What
from rtts.text.segments import Reason, Segment, SplitterOptions
from rtts.text.spoken import render
from rtts.text.tape import BLANKS, Tape

# While at least this much audio waits to be heard, short sentences are merged up to these weights:
# the second segment of a text, the third, and all after it. Longer pieces keep their melody, and
# nobody waits for them (ElevenLabs' chunk_length_schedule, 120 to 290 characters, grows likewise).
_MERGE_FROM_S = 2.0
_MERGE_WEIGHTS = (60.0, 60.0, 90.0, 120.0)

_KANA = re.compile(f"[{KANA}]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_STRAY = re.compile(r"[.!?…。！？)\]}”’»\"']+(?=\s)")


class _End(NamedTuple):
    """A place where a segment may end.

    Attributes:
        at: Clean index after its last character.
        reason: What a segment that ends here gives as its reason.
        pause_s: Silence after it.
    """

    at: int
    reason: Reason
    pause_s: float = 0.0


class Splitter:
    """Cuts one text. Owner: one utterance.

    Call `feed` with whatever came, `stall` when nothing came for `next_stall_s` seconds, `release`
    when what is queued runs low, `flush` at the end; each returns the segments that became final.
    """

    __slots__ = (
        "_carry",
        "_ends",
        "_filter",
        "_hold",
        "_options",
        "_out",
        "_queued_s",
        "_reader",
        "_since_flush",
        "_soft",
        "_stalled",
        "_tape",
    )

    def __init__(self, options: SplitterOptions | None = None) -> None:
        self._options = options = options or SplitterOptions()
        self._tape = Tape()
        self._filter = MarkupFilter(
            self._tape,
            markup=options.markup,
            addresses=Addresses(options.urls),
            drop_emoji=options.emoji == "drop",
        )
        language = normalise_language(options.language) or AUTO
        is_latin = language != AUTO and LANGUAGES[language].script is Script.LATIN
        self._reader = Reader(self._tape, language if is_latin else "")
        self._carry = ""  # half of a surrogate pair
        self._out: list[Segment] = []
        self._queued_s = 0.0  # as of the last feed
        self._since_flush = 0  # segments emitted since the beginning or the last flush
        self._stalled = False  # the last segment was cut by a stall
        self._soft: _End | None = None  # the last end in the segment, too short to cut at
        self._hold: _End | None = None  # the last end in it, held to merge with the next
        self._ends: list[int] = []  # ends in it, where cutting is left to the client

    # --- the calls -------------------------------------------------------------------------------

    def feed(self, text: str, queued_s: float = 0.0) -> list[Segment]:
        """Take more text.

        Args:
            text: Any string: joined to what came before it as it is.
            queued_s: Seconds of this text's audio that are produced or under way and not yet heard.

        Returns:
            The segments that are now final, in order.
        """
        self._queued_s = queued_s
        if self._hold is not None and queued_s < _MERGE_FROM_S:
            self._emit(self._hold)
        self._take(text)
        if self._options.mode == "client":
            return self._finish("message")
        self._filter.run()
        too_long = self._scan(Horizon.OPEN)
        if self._options.mode == "flush" and not too_long:
            self._tidy()
            return []
        return self._take_out()

    def release(self) -> list[Segment]:
        """Emit what is held only to be merged: the audio queue runs low."""
        if self._hold is None:
            return []
        self._emit(self._hold)
        self._scan(Horizon.OPEN)
        return self._take_out()

    def flush(self) -> list[Segment]:
        """Emit everything: nothing more comes, or what came is to be spoken now."""
        if self._carry:
            self._carry = ""
            self._tape.source += "\ufffd"
        segments = self._finish("flush")
        self._since_flush = 0
        return segments

    def stall(self, quiet_s: float, idle: bool) -> list[Segment]:
        """Emit what need not wait any longer, no text having come for `quiet_s`.

        Args:
            quiet_s: Seconds since the last `feed`.
            idle: Nothing is playing or under way.
        """
        plan = self._stall_plan(idle)
        if plan is None or plan[0] > quiet_s:
            return []
        if plan[1] is None:
            self._filter.settle()
            self._scan(Horizon.OPEN)
            plan = self._stall_plan(idle)
        if plan is not None and plan[1] is not None:
            self._emit(_End(plan[1], "stall"))
            self._stalled = True
            self._scan(Horizon.OPEN)
        return self._take_out()

    def next_stall_s(self, idle: bool) -> float | None:
        """Seconds without text after which `stall` would emit something; None for never."""
        plan = self._stall_plan(idle)
        return None if plan is None else plan[0]

    @property
    def held(self) -> bool:
        """Whether a sentence is complete and held only to be merged with the next."""
        return self._hold is not None

    @property
    def pending(self) -> int:
        """Characters of the input that are neither emitted nor dropped yet."""
        return self._tape.source_end - self._tape.kept_from(self._reader.start, self._filter.at)

    # --- input and output ------------------------------------------------------------------------

    def _take(self, text: str) -> None:
        """Append to the source, surrogate halves joined and lone ones replaced by U+FFFD."""
        if self._carry:
            text, self._carry = self._carry + text, ""
        if not text.isascii() and _SURROGATES.search(text):
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._carry = text[:-1], text[-1]
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._tape.source += text

    def _finish(self, reason: Reason) -> list[Segment]:
        """Emit everything there is."""
        self._filter.run(final=True)
        self._scan(Horizon.CLOSED)
        self._emit(_End(self._tape.length, reason))
        self._filter.restart()
        return self._take_out()

    def _take_out(self) -> list[Segment]:
        out, self._out = self._out, []
        self._tidy()
        return out

    def _tidy(self) -> None:
        """Forget the text that is emitted or dropped."""
        start = self._reader.start
        source = self._tape.kept_from(start, self._filter.at)
        self._tape.consume(start, source - 1)  # one character for look-behind

    def _emit(self, end: _End, silence: bool = False) -> None:
        """End the current segment; the next begins after it.

        Args:
            end: Where and why.
            silence: A break follows, so that there is a segment even with nothing to say.
        """
        tape, start = self._tape, self._reader.start
        text = tape.text[start - tape.base : end.at - tape.base]
        skipped = len(text) - len(text.lstrip(BLANKS))
        if self._stalled:
            stray = _STRAY.match(text, skipped)  # closes what the stall has ended already
            skipped = skipped if stray is None else stray.end()
        first, last = start + skipped, start + len(text.rstrip(BLANKS))
        spoken, offsets = render(tape, first, max(first, last))
        if spoken or silence:
            source, source_end = tape.span(first, max(last, first + 1))
            if silence:
                source_end = tape.tails[end.at]
            raw = tape.source[source - tape.source_base : source_end - tape.source_base]
            segment = Segment(raw, spoken, source, source_end, end.reason, end.pause_s, offsets)
            self._out.append(segment)
            self._since_flush += 1
            self._stalled = False
        self._soft = self._hold = None
        self._ends.clear()
        self._reader.begin(end.at, fresh=end.reason not in ("clause", "length"))

    # --- deciding --------------------------------------------------------------------------------

    def _scan(self, horizon: Horizon) -> bool:
        """Read on as far as can be decided; returns whether a segment got too long."""
        too_long = False
        while True:
            found = self._reader.find(horizon, self._limit, self._options.max_chars)
            if found is None:
                return too_long
            if found.what is What.LIMIT:
                too_long = True
                self._cut_at_limit()
            elif found.what is What.BREAK:
                self._break(found)
            elif found.what is What.CLAUSE:
                self._end_clause(found)
            else:
                self._end_sentence(found)

    @property
    def _early(self) -> bool:
        """Whether the next segment is the first one to be heard."""
        return self._options.mode == "auto" and not self._since_flush and self._queued_s <= 0

    @property
    def _limit(self) -> float:
        """The weight the current segment may have."""
        options = self._options
        if self._hold is not None:
            return min(self._merge_weight, options.max_weight)
        return (
            min(options.first_max_weight, options.max_weight) if self._early else options.max_weight
        )

    @property
    def _merge_weight(self) -> float:
        """How heavy merged sentences may become."""
        return _MERGE_WEIGHTS[min(self._since_flush, len(_MERGE_WEIGHTS) - 1)]

    def _end_sentence(self, found: Found) -> None:
        """A sentence or a line ends; emit it, or remember that it could be."""
        options = self._options
        reason: Reason = "line" if found.what is What.LINE else "sentence"
        pause_s = options.paragraph_pause_s if found.blank_line else 0.0
        end = _End(found.at, reason, pause_s)
        if options.mode != "auto":
            self._ends.append(end.at)
        elif self._reader.is_short(end.at, options.min_weight):
            self._soft = end
        elif self._queued_s < _MERGE_FROM_S or end.pause_s:
            self._emit(end)
        elif self._reader.weight < self._merge_weight:
            self._hold = end
        else:
            self._emit(self._hold or end)

    def _end_clause(self, found: Found) -> None:
        """A clause ends; the first segment may end with it."""
        options, reader = self._options, self._reader
        if not self._early or reader.weight < options.first_min_weight:
            return
        start, end = reader.start - self._tape.base, found.at - self._tape.base
        if found.mark == "、" and not _KANA.search(self._tape.text, start, end):
            return  # an enumeration in Chinese, the comma of Japanese
        if not reader.is_short(found.at, options.min_weight):
            self._emit(_End(found.at, "clause"))

    def _break(self, found: Found) -> None:
        """Nothing is spoken across a break; its silence follows what stands before it."""
        tape, reader = self._tape, self._reader
        pause_s = tape.breaks.get(found.at, 0.0)
        before = tape.text[reader.start - tape.base : found.at - tape.base].rstrip(BLANKS)
        reason: Reason = "sentence" if before and before[-1] in FINAL_MARKS else "clause"
        self._emit(_End(found.at, reason, pause_s), silence=pause_s > 0)
        reader.begin(found.at + 1, fresh=True)

    def _cut_at_limit(self) -> None:
        """The segment would become too long: end it at the best place before."""
        if self._hold is not None:
            self._emit(self._hold)
            return
        tape, reader = self._tape, self._reader
        base, text = tape.base, tape.text
        start = reader.start - base
        limit = min(prefix_of_weight(text, start, self._limit), start + self._options.max_chars)
        clauses = [clause - base for clause in reader.clauses]
        cut = best_cut(text, start, limit, [end - base for end in self._ends], clauses)
        self._emit(_End(base + cut, "length"))

    # --- waiting ---------------------------------------------------------------------------------

    def _stall_plan(self, idle: bool) -> tuple[float, int | None] | None:
        """After how long without text to cut where; None as place: the filter must settle first."""
        options, reader = self._options, self._reader
        if options.mode != "auto":
            return None
        commit_s = options.commit_delay_s
        if self._early:
            commit_s = min(commit_s, options.first_max_delay_s)
        end = reader.uncertain_end()
        if end is not None and self._may_end(end, idle):
            return commit_s, end
        if not idle:
            return None
        if (
            self._filter.settles
            and not reader.in_brackets
            and reader.has_letters(self._tape.length)
        ):
            return commit_s, None
        complete = self._hold or self._soft
        if complete is not None and reader.has_letters(complete.at):
            return commit_s, complete.at
        return self._fragment()

    def _may_end(self, end: int, idle: bool) -> bool:
        """Whether the segment up to `end` may be spoken though nothing is known to follow."""
        short = self._reader.is_short(end, self._options.min_weight)
        return self._reader.has_letters(end) if idle else not short

    def _fragment(self) -> tuple[float, int] | None:
        """The last clause or word of an unfinished sentence that may be spoken by itself."""
        options, reader, base = self._options, self._reader, self._tape.base
        if reader.clauses and reader.has_letters(reader.clauses[-1]):
            clause = reader.clauses[-1]
            early = self._early and not reader.is_short(clause, options.min_weight)
            return (options.first_max_delay_s if early else options.max_delay_s), clause
        end = last_word_end(self._tape.text, reader.start - base)
        if end is not None and not reader.is_short(base + end, options.min_weight):
            return options.max_delay_s, base + end
        return None
