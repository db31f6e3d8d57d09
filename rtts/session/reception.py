"""What a client may ask of its contexts, and what becomes of them.

Start, text, flush, end, cancel, playback: each finds its context or raises the typed error that
says why not. Which names are free, which need a new `start` and which late messages are forgiven
is decided here and nowhere else. Knows nothing about sockets, resume or the conversation's time.
"""

from __future__ import annotations

import itertools
from collections import deque

from rtts.engine.interface import Command
from rtts.errors import (
    BadRequestError,
    ContextExistsError,
    ProtocolError,
    RttsError,
    ShuttingDownError,
    TextBufferFullError,
    TextTooLongError,
    TooManyContextsError,
    UnknownContextError,
)
from rtts.protocol.events import (
    Cancel,
    Done,
    End,
    Flush,
    Playback,
    ServerMessage,
    Start,
    Text,
    Warned,
)
from rtts.session import wording
from rtts.session.context import Context
from rtts.session.options import SessionOptions
from rtts.session.record import ClientReport
from rtts.session.roster import Roster
from rtts.session.service import Service
from rtts.session.starting import ignored_options, resolve_start

# After an ending that text may have crossed on its way, that text must not open the context again:
# a stray word after a barge-in would be spoken.
_NEEDS_START = ("cancelled", "error", "expired", "shutdown")


class Reception:
    """The contexts of one conversation, as its client may use them.

    Owner: its session.

    Attributes:
        commands: For the engine, in order; the session empties it.
        outbox: Messages that no running context sends; the session empties it.
        is_leaving: No more contexts are opened.
        reports: Client figures that came after their context's end; the session empties it.
    """

    def __init__(
        self, *, session_id: str, roster: Roster, options: SessionOptions, service: Service
    ) -> None:
        self.commands: list[Command] = []
        self.outbox: deque[ServerMessage] = deque()
        self.reports: list[ClientReport] = []
        self.is_leaving = False
        self._session_id = session_id
        self._roster = roster
        self._options = options
        self._service = service
        self._n_streams = 0
        # Not a method of ours: contexts would hold us, and only a late collection would free both.
        self._next_marker = itertools.count(1).__next__

    def start(self, start: Start, now: float) -> None:
        """Open a context, or answer why not: with the error and the one `done` it ends with.

        Raises:
            ContextExistsError: It is running; it goes on.
        """
        if start.ctx in self._roster.running:
            raise ContextExistsError(f"context {start.ctx!r} is still running")
        try:
            self._open(start, now)
        except RttsError as error:
            self.refuse(start.ctx, error, ref=start.id)

    def refuse(self, ctx: str, error: RttsError, *, ref: str | None, is_last: bool = False) -> None:
        """Answer a `start` that opens nothing; text on its way for it will mean nothing."""
        self._free(ctx)
        self.outbox.append(wording.error(error, ctx=ctx, ref=ref, is_last=is_last))
        self.outbox.append(_refusal(ctx, error.code))
        self._roster.refuse(ctx)

    def would_open(self, message_type: str | None, ctx: str) -> bool:
        """Whether such a message, had it been right, would have opened that context."""
        roster = self._roster
        if ctx in roster.running or message_type not in ("start", "text"):
            return False
        ended = roster.ended.get(ctx)
        is_shut = ctx in roster.refused or (ended is not None and ended.reason in _NEEDS_START)
        return message_type == "start" or not is_shut

    def text(self, message: Text, now: float) -> None:
        """Append text, opening the context if its name is new.

        Raises:
            UnknownContextError: It ended in a way that needs a new `start`.
            BadRequestError: A gap in `n`, or text after `end`.
            TextTooLongError: The message is over the buffer's size.
            TextBufferFullError: It does not fit now.
        """
        context = self._roster.running.get(message.ctx) or self._reopen(message, now)
        if context is None or not _is_next(message, context):
            return
        try:
            context.text(message.text, now)
        except TextBufferFullError as error:
            context.refused = error if message.n is not None else context.refused
            raise
        if message.n is not None:
            context.next_n += 1
            context.refused = None
        if message.flush:
            context.flush(now)
            context.acknowledge_flush(message.id)
        if message.end:
            context.end(now)
        self._roster.settle(context)

    def flush(self, message: Flush, now: float) -> None:
        """Speak what was received; `flushed` follows its audio.

        Raises:
            UnknownContextError: There never was such a context.
        """
        context = self._find(message.ctx)
        if context is not None:
            context.flush(now)
            context.acknowledge_flush(message.id)
            self._roster.settle(context)

    def end(self, message: End, now: float) -> None:
        """No more text.

        Raises:
            UnknownContextError: There never was such a context.
        """
        context = self._find(message.ctx)
        if context is not None:
            context.end(now)
            self._roster.settle(context)

    def cancel(self, message: Cancel, now: float) -> None:
        """Stop one context, or all.

        Raises:
            UnknownContextError: There never was such a context.
        """
        played_s = None if message.played_ms is None else message.played_ms / 1000
        if message.ctx is None:
            self.stop_all("cancelled", now, by="client")
            return
        context = self._find(message.ctx)
        if context is not None:
            context.stop("cancelled", now, played_s, by="client")
            self._roster.settle(context)

    def playback(self, message: Playback, now: float) -> None:
        """Take a playback position, the client's own figures, or both.

        Raises:
            UnknownContextError: There never was such a context.
        """
        context = self._find(message.ctx)
        report = wording.client_report(self._session_id, message)
        if context is None:
            ended = self._roster.ended.get(message.ctx)
            if ended is not None and (news := ended.note_figures(report)).has_figures:
                self.reports.append(news)
            return
        context.note_figures(report)
        if message.played_ms is not None:
            context.report(message.played_ms / 1000, now)
            self._roster.settle(context)

    def stop_all(self, reason: str, now: float, *, code: str = "", by: str = "") -> None:
        """End every running context; `by` as for `Context.stop`."""
        for context in list(self._roster.running.values()):
            context.stop(reason, now, code=code, by=by)
            self._roster.settle(context)

    def _open(self, start: Start, now: float) -> None:
        if self.is_leaving:
            raise ShuttingDownError("this connection is about to close; open another one")
        if len(self._roster.running) >= self._options.max_contexts:
            raise TooManyContextsError(
                f"{self._options.max_contexts} contexts are open on this connection",
                retry_after_s=1.0,
            )
        self._service.admit(now)
        capabilities = self._service.capabilities
        assert capabilities is not None, "admission checked it"
        options = resolve_start(
            start, stream=self._n_streams + 1, options=self._options, capabilities=capabilities
        )
        self._n_streams += 1
        context = Context(
            options,
            limits=self._options,
            service=self._service,
            commands=self.commands,
            next_marker=self._next_marker,
            now=now,
            ref=start.id,
        )
        for what in ignored_options(start, capabilities):
            context.delivery.push(Warned(code="ignored_option", message=what, ctx=start.ctx))
        self._free(start.ctx)
        for old in self._roster.take_overdue():
            self.outbox.extend(old.delivery.take_waiting())
        self._roster.add(context)

    def _reopen(self, message: Text, now: float) -> Context | None:
        """Open a context implicitly, or find that this text is late and means nothing."""
        if message.ctx in self._roster.refused:
            return None  # it was answered once; the rest of its text was on the way
        ended = self._roster.ended.get(message.ctx)
        if ended is not None and ended.reason in _NEEDS_START:
            raise UnknownContextError(
                f"context {message.ctx!r} has ended ({ended.reason}); `start` it again"
            )
        try:
            self._check_first(message)
        except ProtocolError as error:
            self.refuse(message.ctx, error, ref=message.id)
            return None
        self.start(Start(ctx=message.ctx, id=message.id), now)
        return self._roster.running.get(message.ctx)

    def _check_first(self, message: Text) -> None:
        """Find out before opening a context whether its first text can be taken."""
        if message.n:
            raise BadRequestError(f"n: 0 was expected, not {message.n}")
        if len(message.text) > self._options.max_text_chars:
            raise TextTooLongError(
                f"{len(message.text)} characters in one message, "
                f"the limit is {self._options.max_text_chars}"
            )

    def _find(self, name: str) -> Context | None:
        """The running context of that name; None if it ended lately, which a client may cross."""
        context = self._roster.running.get(name)
        if context is None and not self._roster.is_known(name):
            raise UnknownContextError(f"there is no context {name!r}")
        return context

    def _free(self, name: str) -> None:
        """Make a finished context's name free; what it still has to say goes first."""
        ended = self._roster.forget(name)
        if ended is not None:
            self.outbox.extend(ended.delivery.take_waiting())


def _is_next(message: Text, context: Context) -> bool:
    """Whether a numbered text is the one expected; False if it was received already."""
    if message.n is None or message.n == context.next_n:
        return True
    if message.n > context.next_n:
        if context.refused is not None:  # this one was on its way behind it
            raise TextBufferFullError(
                f"n: {context.next_n} found no room and comes first",
                retry_after_s=context.refused.retry_after_s,
            )
        raise BadRequestError(f"n: {context.next_n} was expected, not {message.n}")
    return False


def _refusal(ctx: str, code: str) -> Done:
    return Done(
        ctx=ctx,
        reason="error",
        segments=0,
        last_seq=-1,
        audio_ms=0.0,
        samples=0,
        text_chars=0,
        code=code,
    )
