"""Cuts text that is still being written into segments worth speaking.

The splitter is pure: text goes in as it comes, segments come out, and time exists only as the
seconds its caller mentions. Which cuts it makes depends on the text and on those seconds, never on
how the text was cut into messages. It takes time linear in the text and holds a bounded piece of
it, whatever the text is. What a mark means is `rtts.text.boundaries`' business, what is markup
`rtts.text.markup`'s; this module decides when to cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from rtts.errors import ConfigError
from rtts.text.boundaries import (
    BULLETS,
    CLAUSE_MARKS,
    CLOSERS,
    FINAL_MARKS,
    OPENERS,
    PAIRS,
    Decision,
    Horizon,
    Kind,
    View,
    is_blank_line,
    read_bullet,
    read_clause_mark,
    read_closing_bracket,
    read_final_mark,
    read_line_end,
)
from rtts.text.characters import prefix_of_weight, weight
from rtts.text.cuts import best_cut
from rtts.text.languages import AUTO, KANA, LANGUAGES, LatinGuess, Script, normalise_language
from rtts.text.markup import Addresses, MarkupFilter
from rtts.text.spoken import render
from rtts.text.tape import BREAK, HARD, LINE, SYMBOL, Tape

Reason = Literal["sentence", "line", "clause", "length", "stall", "flush", "message"]
Mode = Literal["auto", "client", "flush"]

# While at least this much audio waits to be heard, short sentences are merged (text.md 4 of the
# design: ElevenLabs' chunk_length_schedule grows likewise) up to these weights: the second segment
# of a text, the third, and all after it.
_MERGE_FROM_S = 2.0
_MERGE_WEIGHTS = (60.0, 60.0, 90.0, 120.0)

# No cut inside brackets that close within this many characters.
_MAX_BRACKETS = 80

_MIN_LETTERS = 2
_WINDOW = 256
_BLANKS = f" {LINE}{HARD}"
_EVENT = re.compile(
    f"[{re.escape(FINAL_MARKS + CLAUSE_MARKS + OPENERS + CLOSERS + BULLETS)}{LINE}{HARD}{BREAK}]"
)
_EYES = frozenset(":;=8-")
_LINE_MARKS = frozenset(LINE + HARD)
_CLOSERS = frozenset(CLOSERS)
_ENDING = frozenset(FINAL_MARKS) | _LINE_MARKS
_LETTERS = re.compile(r"[^\W_]")
_KANA = re.compile(f"[{KANA}]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_STRAY = re.compile(r"[.!?…。！？)\]}”’»\"']+(?=\s)")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the input that is spoken in one go.

    Attributes:
        text: The input from `start` to `end`, as it came.
        spoken: What the engine is to say; empty for a silence.
        start: Index of its first character in the whole input. A surrogate pair that came in two
            halves counts as one character.
        end: Index after its last character.
        reason: Why it ends where it ends.
        pause_s: Silence to play after it.
        offsets: For each character of `spoken`, the index of the input it came from.
    """

    text: str
    spoken: str
    start: int
    end: int
    reason: Reason
    pause_s: float = 0.0
    offsets: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SplitterOptions:
    """How text is cut. Weights are in Latin characters; an ideograph, kana or hangul is 2.5.

    Attributes:
        language: "auto", a tag or a name; decides the rules for Latin letters.
        mode: "auto" cuts by itself; "client" takes each message for a finished piece; "flush"
            cuts only when told. All three keep to the maximum.
        markup: Whether markdown, tags, addresses and emoji are interpreted.
        first_min_weight: The first segment may end at a clause mark from this weight on (20 is
            about 1.3 s of speech).
        first_max_weight: The first segment is cut at a space at this weight.
        max_weight: No segment is longer (13 s of Latin speech, 18 s of Chinese).
        min_weight: A shorter sentence waits for the next one: short inputs are what speech models
            fail on.
        max_chars: No segment has more characters, whatever they weigh.
        urls: A bare URL is spoken as its host name, dropped, or kept.
        emoji: Emoji are dropped or kept.
        paragraph_pause_s: Silence after a paragraph.
        commit_delay_s: After so long without text, a sentence that only lacks what follows it is
            taken for finished.
        first_max_delay_s: The same for the first segment, which also may end at a short clause.
        max_delay_s: After so long without text and with nothing to hear, speak what there is, up
            to the last clause or whole word.
    """

    language: str = AUTO
    mode: Mode = "auto"
    markup: bool = True
    first_min_weight: float = 20.0
    first_max_weight: float = 80.0
    max_weight: float = 200.0
    min_weight: float = 8.0
    max_chars: int = 200
    urls: Literal["host", "drop", "keep"] = "host"
    emoji: Literal["drop", "keep"] = "drop"
    paragraph_pause_s: float = 0.3
    commit_delay_s: float = 0.25
    first_max_delay_s: float = 0.15
    max_delay_s: float = 1.5

    def __post_init__(self) -> None:
        if normalise_language(self.language) is None:
            known = ", ".join([AUTO, *LANGUAGES])
            raise ConfigError(f"text.language is {self.language!r}; allowed are {known}")
        if self.max_weight < 20 or self.max_chars < 20:
            raise ConfigError("text.max_weight and text.max_chars must be at least 20")


class _Step(Enum):
    """How reading went on."""

    ON = "on"
    STOP = "stop"  # the rest needs more text
    CUT = "cut"  # the segment had become too long


def _reader(mark: str) -> Callable[[View, int], Decision]:
    """What decides about a mark."""
    return _READERS.get(mark, read_clause_mark)


_READERS: dict[str, Callable[[View, int], Decision]] = (
    dict.fromkeys(FINAL_MARKS, read_final_mark)
    | dict.fromkeys(LINE + HARD, read_line_end)
    | dict.fromkeys(BULLETS, read_bullet)
    | {")": read_closing_bracket}
)


@dataclass(frozen=True, slots=True)
class _End:
    """A place where a segment may end.

    Attributes:
        index: Clean index after its last character.
        reason: What a segment that ends here gives as its reason.
        pause_s: Silence after it.
    """

    index: int
    reason: Reason
    pause_s: float = 0.0


class Splitter:
    """Cuts one text. Owner: one utterance.

    Call `feed` with whatever came, `stall` when nothing came for `next_stall_s` seconds, `release`
    when what is queued runs low, `flush` at the end; each returns the segments that became final.
    """

    __slots__ = (
        "_at",
        "_carry",
        "_clauses",
        "_counted",
        "_ends",
        "_filter",
        "_fresh",
        "_guess",
        "_hold",
        "_ignored",
        "_latin",
        "_open",
        "_options",
        "_out",
        "_queued_s",
        "_since_flush",
        "_soft",
        "_stalled",
        "_start",
        "_suppressed",
        "_tape",
        "_weight",
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
        self._carry = ""  # half of a surrogate pair
        self._guess = LatinGuess()
        self._counted = 0  # clean index up to which the guess has seen the text
        language = normalise_language(options.language) or AUTO
        latin = language != AUTO and LANGUAGES[language].script is Script.LATIN
        self._latin = language if latin else ""  # language of Latin letters, if it is known
        self._out: list[Segment] = []
        self._queued_s = 0.0
        self._since_flush = 0  # segments emitted since the beginning or the last flush
        self._stalled = False  # the last segment was cut by a stall
        self._fresh = True  # the current segment begins where a sentence does
        self._start = 0  # clean index at which the current segment begins
        self._ignored = 0  # brackets that open before this clean index are text
        self._restart()

    def _restart(self) -> None:
        """Read the current segment from its beginning."""
        self._at = self._start  # clean index up to which the segment is read
        self._weight = 0.0  # of the segment up to there
        self._clauses: list[int] = []  # ends of clauses in it
        self._ends: list[int] = []  # ends of sentences in it that were not cut at
        self._soft: _End | None = None  # the last sentence end in it, too short to cut at
        self._hold: _End | None = None  # the last sentence end in it, held to merge with the next
        self._open: list[tuple[str, int]] = []  # closers of open brackets, and where they opened
        self._suppressed = False  # a sentence ended inside those brackets

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
            self._release()
        self._take(text)
        client = self._options.mode == "client"
        self._filter.run(final=client)
        cuts = self._scan(Horizon.CLOSED if client else Horizon.OPEN)
        if client:
            self._emit_rest("message")
            self._filter.begin_line()
        if self._options.mode == "flush" and not cuts:
            self._tidy()
            return []
        return self._take_out()

    def release(self) -> list[Segment]:
        """Emit what is held only to be merged: the audio queue runs low."""
        self._release()
        self._scan(Horizon.OPEN)
        return self._take_out()

    def flush(self) -> list[Segment]:
        """Emit everything: nothing more comes, or what came is to be spoken now."""
        if self._carry:
            self._carry = ""
            self._tape.source += "\ufffd"
        self._filter.run(final=True)
        self._scan(Horizon.CLOSED)
        self._emit_rest("flush")
        self._since_flush = 0
        return self._take_out()

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
        return self._tape.source_end - self._tape.kept_from(self._start, self._filter.at)

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

    def _take_out(self) -> list[Segment]:
        out, self._out = self._out, []
        self._tidy()
        return out

    def _tidy(self) -> None:
        """Forget the text that is emitted or dropped."""
        tape = self._tape
        source = tape.kept_from(self._start, self._filter.at)
        tape.consume(self._start, max(0, source - 1))  # one character for look-behind

    def _emit_rest(self, reason: Reason) -> None:
        self._emit(_End(self._tape.length, reason))

    def _emit(self, end: _End, silence: bool = False) -> None:
        """End the current segment; begin the next after it."""
        tape = self._tape
        text = tape.text[self._start - tape.base : end.index - tape.base]
        first = self._start + len(text) - len(text.lstrip(_BLANKS))
        if self._stalled:
            stray = _STRAY.match(text, first - self._start)
            first += 0 if stray is None else stray.end() - (first - self._start)
        last = self._start + len(text.rstrip(_BLANKS))
        spoken, offsets = render(tape, first, max(first, last))
        if spoken or silence:
            source, source_end = tape.span(first, max(last, first + 1))
            if silence:
                source_end = tape.tails[end.index]
            raw = tape.source[source - tape.source_base : source_end - tape.source_base]
            self._out.append(
                Segment(raw, spoken, source, source_end, end.reason, end.pause_s, offsets)
            )
            self._since_flush += 1
            self._stalled = False
        if not self._latin:
            self._count(end.index)
        self._start = end.index
        self._fresh = end.reason not in ("clause", "length")
        self._restart()

    def _release(self) -> None:
        if self._hold is not None:
            self._emit(self._hold)

    # --- reading ---------------------------------------------------------------------------------

    def _scan(self, horizon: Horizon) -> bool:
        """Read on as far as can be decided; returns whether a segment got too long."""
        too_long = False
        while True:
            outcome = self._advance(horizon)
            if outcome is _Step.STOP:
                return too_long
            too_long = too_long or outcome is _Step.CUT

    def _advance(self, horizon: Horizon) -> _Step:
        """Read up to the next mark and what it means."""
        text, base = self._tape.text, self._tape.base
        at, length = self._at - base, len(text)
        if self._at == self._start:
            while at < length and text[at] in _BLANKS:
                at += 1
            self._start = self._at = base + at
        if at == length:
            return _Step.STOP
        match = _EVENT.search(text, at, at + _WINDOW)
        stop = min(length, at + _WINDOW) if match is None else match.start()
        if stop > at and not self._grow(text, at, stop):
            return _Step.CUT
        if match is None:
            return _Step.ON
        return self._read_event(text, stop, horizon)

    def _grow(self, text: str, start: int, end: int) -> bool:
        """Take `text[start:end]` into the segment; cut and say False if that makes it too long."""
        base = self._tape.base
        grown = self._weight + weight(text[start:end])
        if grown > self._limit or base + end - self._start > self._options.max_chars:
            self._cut_at_limit(text)
            return False
        self._weight = grown
        self._at = base + end
        return True

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

    def _cut_at_limit(self, text: str) -> None:
        if self._hold is not None:
            self._emit(self._hold)
            return
        base = self._tape.base
        start = self._start - base
        limit = min(prefix_of_weight(text, start, self._limit), start + self._options.max_chars)
        low = start + (limit - start) // 3
        for end in reversed(self._ends):
            if low < end - base <= limit:
                self._emit(_End(end, "length"))
                return
        cut = best_cut(text, start, limit, [clause - base for clause in self._clauses])
        self._emit(_End(base + cut, "length"))

    def _read_event(self, text: str, index: int, horizon: Horizon) -> _Step:
        mark = text[index]
        if mark == BREAK:
            return self._break(text, index)
        if self._open and (
            mark in _LINE_MARKS or index + self._tape.base - self._open[0][1] > _MAX_BRACKETS
        ):
            if self._give_up_brackets():
                return _Step.ON
        if mark in PAIRS or (mark in _CLOSERS and (self._open or mark != ")")):
            self._bracket(text, index, mark)
            return _Step.ON if self._grow(text, index, index + 1) else _Step.CUT
        view = self._view(text, index, mark, horizon)
        return self._decide(view, index, mark)

    def _view(self, text: str, index: int, mark: str, horizon: Horizon) -> View:
        start = self._start - self._tape.base
        return View(text, start, horizon, self._language(text, index, mark), self._fresh)

    def _language(self, text: str, index: int, mark: str) -> str:
        """The language of the Latin letters up to `index`; only full stops want to know."""
        if self._latin or mark != ".":
            return self._latin
        self._count(index + self._tape.base)
        return self._guess.best()

    def _count(self, end: int) -> None:
        """Let the guess see the text up to clean `end`."""
        if end > self._counted:
            base = self._tape.base
            self._guess.count(self._tape.text[max(0, self._counted - base) : end - base])
            self._counted = end

    def _decide(self, view: View, index: int, mark: str) -> _Step:
        kind, cut = _reader(mark)(view, index)
        blank = is_blank_line(view.text, cut) if kind is Kind.END else False
        if kind is Kind.WAIT or (blank is None and view.open):
            return _Step.STOP
        if cut < index:
            return self._end_before(view.text, index, cut)
        if cut > index and not self._grow(view.text, index, cut):
            return _Step.CUT
        if self._open:
            for closer in view.text[index + 1 : cut]:
                if closer in _CLOSERS:
                    self._bracket(view.text, index, closer)
        if kind is Kind.CLAUSE:
            self._end_clause(view.text, cut, mark)
        elif kind is Kind.END:
            reason: Reason = "line" if mark in _LINE_MARKS else "sentence"
            pause_s = self._options.paragraph_pause_s if blank else 0.0
            self._end_sentence(view.text, _End(self._tape.base + cut, reason, pause_s))
            if cut == index and self._at == self._tape.base + cut > self._start:
                return _Step.ON if self._grow(view.text, index, index + 1) else _Step.CUT
        return _Step.ON

    def _end_before(self, text: str, index: int, cut: int) -> _Step:
        """An item ends at `cut`, before the number at `index` that begins the next."""
        here = self._at
        self._end_sentence(text, _End(self._tape.base + cut, "line"))
        if self._at != here or self._grow(text, index, index + 1):
            return _Step.ON
        return _Step.CUT

    def _end_sentence(self, text: str, end: _End) -> None:
        """A sentence or line ends; emit it, or remember that it could be."""
        if self._open and end.reason == "sentence":
            self._suppressed = True
        elif self._options.mode != "auto":
            self._ends.append(end.index)
        elif self._is_short(text, end.index):
            self._soft = end
        elif self._queued_s < _MERGE_FROM_S or end.pause_s:
            self._emit(end)
        elif self._weight < self._merge_weight:
            self._hold = end
        else:
            self._emit(self._hold or end)

    def _end_clause(self, text: str, cut: int, mark: str) -> None:
        """A clause ends; the first segment may end with it."""
        index = self._tape.base + cut
        self._clauses.append(index)
        if self._open or not self._early or self._weight < self._options.first_min_weight:
            return
        if mark == "、" and not _KANA.search(text, self._start - self._tape.base, cut):
            return  # an enumeration in Chinese, the comma of Japanese
        if not self._is_short(text, index):
            self._emit(_End(index, "clause"))

    def _is_short(self, text: str, index: int) -> bool:
        """Whether the segment up to `index` is too short to be spoken alone."""
        piece = text[self._start - self._tape.base : index - self._tape.base]
        if weight(piece) < self._options.min_weight:
            return True
        return len(_LETTERS.findall(piece)) < _MIN_LETTERS

    def _break(self, text: str, index: int) -> _Step:
        """Nothing is spoken across a break; its silence follows what stands before it."""
        at = self._tape.base + index
        pause_s = self._tape.breaks.get(at, 0.0)
        before = text[self._start - self._tape.base : index].rstrip(_BLANKS)
        reason: Reason = "sentence" if before and before[-1] in FINAL_MARKS else "clause"
        self._emit(_End(at, reason, pause_s), silence=pause_s > 0)
        self._start = at + 1
        self._restart()
        return _Step.ON

    # --- brackets --------------------------------------------------------------------------------

    def _bracket(self, text: str, index: int, mark: str) -> None:
        at = self._tape.base + index
        if mark in PAIRS:
            if at >= self._ignored and not (index and text[index - 1] in _EYES):
                self._open.append((PAIRS[mark], at))
            return
        for depth in range(len(self._open) - 1, -1, -1):
            if self._open[depth][0] == mark:
                del self._open[depth:]
                break
        if not self._open:
            self._suppressed = False

    def _give_up_brackets(self) -> bool:
        """The open brackets close too late; returns whether the segment is to be read again."""
        self._ignored = self._at
        self._open.clear()
        if not self._suppressed:
            return False
        self._restart()
        return True

    # --- waiting ---------------------------------------------------------------------------------

    def _stall_plan(self, idle: bool) -> tuple[float, int | None] | None:
        """After how long to cut where if nothing more comes; None as place: settle the filter first."""
        options = self._options
        if options.mode != "auto":
            return None
        commit_s = options.commit_delay_s
        if self._early:
            commit_s = min(commit_s, options.first_max_delay_s)
        text, base = self._tape.text, self._tape.base
        end = self._uncertain_end(text)
        if end is not None and (idle or not self._is_short(text, end)):
            return commit_s, end
        if self._filter.settles and not self._open:
            if idle and _LETTERS.search(text, self._start - base):
                return commit_s, None
        if not idle:
            return None
        complete = self._hold or self._soft
        if complete is not None and _LETTERS.search(
            text, self._start - base, complete.index - base
        ):
            return commit_s, complete.index
        return self._fragment(text)

    def _uncertain_end(self, text: str) -> int | None:
        """The end of a sentence at the end of the text, if it only lacks what follows it."""
        index = self._at - self._tape.base
        if index >= len(text) or self._open or text[index] not in _ENDING:
            return None
        mark = text[index]
        start = self._start - self._tape.base
        view = self._view(text, index, mark, Horizon.QUIET)
        kind, cut = _reader(mark)(view, index)
        if kind is not Kind.END or text[cut:].strip(_BLANKS + SYMBOL):
            return None
        return self._tape.base + cut if _LETTERS.search(text, start, cut) else None

    def _fragment(self, text: str) -> tuple[float, int] | None:
        """The last clause or word of an unfinished sentence that may be spoken by itself."""
        options, base = self._options, self._tape.base
        start = self._start - base
        if self._clauses and _LETTERS.search(text, start, self._clauses[-1] - base):
            long = not self._is_short(text, self._clauses[-1])
            delay_s = options.first_max_delay_s if self._early and long else options.max_delay_s
            return delay_s, self._clauses[-1]
        space = max(text.rfind(" ", start), text.rfind(LINE, start))
        if space > start and not self._is_short(text, base + space):
            return options.max_delay_s, base + space
        return None
