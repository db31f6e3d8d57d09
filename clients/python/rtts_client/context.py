"""One reply: text in, an async iterator of audio and events out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

import msgspec

from rtts_client.errors import ContextFailedError, SlowReaderError
from rtts_client.messages import (
    Audio,
    AudioFlags,
    ContextError,
    ContextEvent,
    ContextOptions,
    Done,
    FirstAudio,
    Flushed,
    Marks,
    Reconnected,
    ResumedContext,
    Segment,
    Started,
    StreamFormat,
    Warned,
    encode,
)
from rtts_client.pacing import ReadingClock
from rtts_client.script import Script

if TYPE_CHECKING:
    from rtts_client.client import Client

TextSource = str | Iterable[str] | AsyncIterable[str]
# Text that finds no room is tried again after this long without a sign of life.
RETRY_S = 3.0
# One that was sent without room and not refused by then was taken (nothing in it was to be spoken,
# as in a listing of code), so the next is tried this soon.
TAKEN_S = 0.2
_MOST_MS = 86_400_000  # that the protocol takes in a figure: a day


class Context:
    """One reply, made by `Client.context`; an async context manager and async iterator.

    Iterating yields events in order and ends after `Done` ("completed" or "cancelled"); any other
    end raises `ContextFailedError` once everything that arrived was read. Leaving the `async with`
    before the end cancels.

    Attributes:
        name: What the wire calls it.
        format: The audio format, once `Started` came.
        first_packet_s: From sending the text that completed the first segment until its first
            audio arrived here; None before. Reported to the server unless `reports` is off.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        options: ContextOptions,
        *,
        buffer_s: float,
        max_buffer_s: float,
        reports: bool,
    ) -> None:
        self.name = name
        self.format: StreamFormat | None = None
        self.first_packet_s: float | None = None
        self._client = client
        self._options = options
        self._buffer_s = buffer_s
        self._max_buffer_s = max_buffer_s
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._is_entered = False
        self._session = 0  # of the client's: the one that knows it
        # Out.
        mode = options.chunking.mode if options.chunking is not None else "auto"
        self._script = Script(name, keeps_pieces=mode == "client")
        self._is_started = False
        self._cancel: dict[str, float | None] | None = None  # fields of the cancel, once asked
        self._is_cancel_sent = False
        self._may_try = False  # send one text although there seems to be no room
        self._retry: asyncio.TimerHandle | None = None  # no text is sent while it is set
        self._is_refused = False  # it is set because a text was refused
        self._said: list[tuple[int, float]] = []  # (characters so far, when), until audio comes
        self._feeder: asyncio.Task[None] | None = None
        # In.
        self._events: deque[ContextEvent] = deque()
        self._arrived = asyncio.Event()
        self._finished = asyncio.Event()
        self._outcome: Done | BaseException | None = None
        self._is_outcome_read = False
        self._error: ContextError | None = None
        self._last_seq = -1
        self._segment = (-1, 0)  # number of the last one, and where it ends in the text
        self._has_first_audio = False
        self._acked: set[str | None] = set()
        self._marked: set[int] = set()  # segments whose words were timed
        self._clock = ReadingClock()
        self._throttle: asyncio.TimerHandle | None = None  # set once the server is held back
        self._caller_reports = False

    async def __aenter__(self) -> Self:
        self._is_entered = True
        self._client._register(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
        self._request_cancel(None)

    # --- saying ------------------------------------------------------------------------------

    async def send(self, text: str) -> None:
        """Append text, as it comes; cut it wherever you like. Never waits for speech.

        Raises:
            ValueError: After `end`.
        """
        self._say(text)

    async def flush(self) -> str:
        """Speak what was sent without waiting for punctuation; returns the `Flushed.id` to come."""
        flush_id = self._script.flush()
        self._note_said()
        return flush_id

    async def end(self) -> None:
        """No more text follows."""
        self._script.end()
        self._note_said()

    async def cancel(self, played_ms: float | None = None) -> Done:
        """Stop now; unread events are dropped.

        Args:
            played_ms: Audio of the context that was really heard.

        Returns:
            The end of the context: `spoken` and `remaining` divide all text that was given to
            `send`. Of a context that was over already, how it ended.
        """
        self._check_entered()
        self._request_cancel(played_ms)
        await self._finished.wait()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    async def report_playback(
        self,
        played_ms: float | None = None,
        *,
        first_sound_ms: float | None = None,
        underruns: int | None = None,
        stalled_ms: float | None = None,
        output_latency_ms: float | None = None,
    ) -> None:
        """Tell the server what your player did; figures may come after `Done`.

        Once `played_ms` was reported, go on reporting it at least every second: it replaces the
        server's own playback clock.
        """
        self._caller_reports = self._caller_reports or played_ms is not None
        self._post_playback(
            played_ms=played_ms,
            first_sound_ms=first_sound_ms,
            underruns=underruns,
            stalled_ms=stalled_ms,
            output_latency_ms=output_latency_ms,
        )

    async def speak(self, text: TextSource) -> AsyncIterator[ContextEvent]:
        """Send all of `text` as it comes, end, and yield the events meanwhile.

        An error of `text` itself cancels the context and is raised here.
        """
        self._feed_from(text)
        async for event in self:
            yield event

    async def save(self, path: str | Path, text: TextSource | None = None) -> Done:
        """Write the audio to a file; for contexts whose format has the container "ogg" or "wav".

        Args:
            text: Sent meanwhile, as by `speak`.
        """
        wanted = self._options.format
        if wanted is None or wanted.container not in ("ogg", "wav"):
            raise ValueError("save needs a context started with container 'ogg' or 'wav'")
        if text is not None:
            self._feed_from(text)
        file: IO[bytes] = await asyncio.to_thread(open, path, "wb")
        done: Done | None = None
        with file:
            async for event in self:
                if isinstance(event, Audio):
                    file.write(event.data)
                elif isinstance(event, Done):
                    done = event
            if wanted.container == "wav":
                _set_wav_sizes(file)
        assert done is not None
        return done

    def _feed_from(self, text: TextSource) -> None:
        self._feeder = asyncio.create_task(self._feed(text))
        self._feeder.add_done_callback(self._fed)

    async def _feed(self, text: TextSource) -> None:
        if isinstance(text, AsyncIterable):
            async for piece in text:
                self._say(piece)
        else:
            for piece in (text,) if isinstance(text, str) else text:
                self._say(piece)
        await self.end()

    def _fed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._request_cancel(None)
            self._finish(error)

    def _say(self, text: str) -> None:
        self._script.say(text, self._client.ready.limits.max_text_chars)
        self._note_said()

    def _note_said(self) -> None:
        self._check_entered()
        if not self._clock.has_begun:
            self._said.append((self._script.n_chars, self._loop.time()))
        self._client._wake.set()

    def _check_entered(self) -> None:
        if not self._is_entered:
            raise RuntimeError("use a context with `async with`")

    def _request_cancel(self, played_ms: float | None) -> None:
        if self._outcome is None and self._cancel is None:
            self._cancel = _within(played_ms=played_ms)
            self._events.clear()
            self._client._wake.set()

    # --- for the client: what to send next ---------------------------------------------------

    def _next_message(self) -> str | None:
        if not self._is_started:
            self._is_started = True
            self._session = self._client._n_sessions
            return encode("start", ctx=self.name, **msgspec.structs.asdict(self._options))
        if self._cancel is not None:
            is_sent, self._is_cancel_sent = self._is_cancel_sent, True
            return None if is_sent else encode("cancel", ctx=self.name, **self._cancel)
        limit = self._client.ready.limits.max_text_chars
        if self._retry is not None:
            return None
        is_forced, self._may_try = self._may_try, False
        message, is_blocked = self._script.next_message(limit, is_forced=is_forced)
        if is_blocked:
            self._try_after(RETRY_S)
        elif is_forced and message is not None:  # it may be refused
            self._try_after(TAKEN_S)
        return message

    def _try_after(self, delay_s: float, *, is_refused: bool = False) -> None:
        if is_refused and self._retry is not None and not self._is_refused:
            self._retry.cancel()
            self._retry = None
        if self._retry is None:
            self._retry = self._loop.call_later(delay_s, self._try)
        self._is_refused = self._is_refused or is_refused

    def _try(self) -> None:
        self._retry = None
        self._is_refused = False
        self._may_try = True
        self._client._wake.set()

    def _resume(self, server: ResumedContext | None, away_s: float) -> bool:
        """Go on after a reconnect. Returns whether there is anything to go on with."""
        if server is None:
            self._session = 0
        if server is None and (self.format is not None or self._outcome is not None):
            self._finish(ContextFailedError("resume_failed", "the server has forgotten it"))
            return False
        self._is_started = server is not None
        self._is_cancel_sent = False
        self._script.rewind(server.next_n if server is not None else 0)
        if self._cancel is None:
            self._put(Reconnected(away_s))
        return True

    # --- for the client: what arrived --------------------------------------------------------

    def _receive(self, event: ContextEvent) -> None:
        if self._outcome is not None:
            return
        if isinstance(event, Done):
            self._finish(self._judge(event))
        elif isinstance(event, ContextError):
            self._receive_error(event)
        elif self._is_news(event):
            self._note_life()
            self._note_progress(event)
            if self._cancel is None:
                self._put(event)
                self._check_waiting()

    def _is_news(self, event: ContextEvent) -> bool:
        """Whether an event was not there before a reconnect already; remembers it."""
        match event:
            case Started():
                is_news, self.format = self.format is None, event.format
            case Audio():
                is_news, self._last_seq = event.seq > self._last_seq, max(event.seq, self._last_seq)
            case Segment():
                is_news = event.segment > self._segment[0]
            case Flushed():
                is_news = event.id not in self._acked
                self._acked.add(event.id)
            case Marks():
                is_news = event.segment not in self._marked
                self._marked.add(event.segment)
            case FirstAudio():
                is_news, self._has_first_audio = not self._has_first_audio, True
            case _:
                is_news = True
        return is_news

    def _note_life(self) -> None:
        """The server is at work, so waiting for room is in order."""
        if self._retry is not None and not self._is_refused:
            self._retry.cancel()
            self._retry = None
            self._client._wake.set()

    def _note_progress(self, event: ContextEvent) -> None:
        spoken = 0
        match event:
            case Segment():
                spoken = event.chars[0]
                self._segment = (event.segment, event.chars[1])
            case Audio():
                if not self._clock.has_begun:
                    self._note_first_packet()
                self._clock.received(event.duration_ms / 1000, self._loop.time())
                if event.flags & AudioFlags.LAST_OF_SEGMENT:
                    spoken = self._segment[1]
            case Warned(segment=int()):
                spoken = self._segment[1]
            case _:
                pass
        if self._script.spoken(spoken):
            self._client._wake.set()

    def _note_first_packet(self) -> None:
        wanted = self._segment[1]
        said_at = next((at for n_chars, at in self._said if n_chars >= wanted), None)
        self._said.clear()
        if said_at is None:
            return
        self.first_packet_s = self._loop.time() - said_at
        if self._reports:
            self._post_playback(first_packet_ms=round(1000 * self.first_packet_s, 3))

    def _receive_error(self, error: ContextError) -> None:
        if error.code == "text_buffer_full" and self._script.take_back(error.ref):
            self._try_after(error.retry_after_s or RETRY_S, is_refused=True)
        elif error.code != "bad_request" or not self._script.was_taken_back(error.ref):
            self._error = error
            if self._cancel is None:
                self._put(error)

    def _judge(self, done: Done) -> Done | ContextFailedError:
        if done.spoken is not None:  # count in what was said and never reached the server
            remaining = self._script.text[len(done.spoken) :]
            done = msgspec.structs.replace(done, remaining=remaining)
        if done.reason in ("completed", "cancelled"):
            return done
        error = self._error
        if error is None or (done.code is not None and error.code != done.code):
            return ContextFailedError(done.code or done.reason, "", done=done)
        return ContextFailedError(error.code, error.message, error.retry_after_s, done=done)

    def _finish(self, outcome: Done | BaseException) -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        for timer in (self._retry, self._throttle):
            if timer is not None:
                timer.cancel()
        self._finished.set()
        self._arrived.set()

    # --- reading -----------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ContextEvent:
        self._check_entered()
        while not self._events:
            if self._outcome is not None:
                return self._read_outcome()
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, Audio):
            self._clock.read(event.duration_ms / 1000)
        return event

    def _read_outcome(self) -> Done:
        if self._is_outcome_read:
            raise StopAsyncIteration
        self._is_outcome_read = True
        if isinstance(self._outcome, Done):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def _put(self, event: ContextEvent) -> None:
        self._events.append(event)
        self._arrived.set()

    def _check_waiting(self) -> None:
        """Hold the server back when audio is not read; give up when that does not help."""
        waiting_s = self._clock.waiting_s
        if waiting_s > self._max_buffer_s:
            failure = SlowReaderError("slow_reader", f"{waiting_s:.0f} s of audio were not read")
            unread = list(self._events)
            self._request_cancel(None)
            self._events.extend(unread)
            self._finish(failure)
        elif waiting_s > self._buffer_s and self._throttle is None:
            self._report_clock()

    def _report_clock(self) -> None:
        if self._outcome is not None or self._caller_reports or self._cancel is not None:
            return
        played_s = self._clock.played_s(self._loop.time())
        self._post_playback(played_ms=round(1000 * played_s, 1))
        # The protocol asks for a report at least every quarter of the lead.
        every_s = min(1.0, max(0.05, self._client.ready.limits.max_lead_ms / 4000))
        self._throttle = self._loop.call_later(every_s, self._report_clock)

    def _post_playback(self, **figures: float | None) -> None:
        message = encode("playback", ctx=self.name, **_within(**figures))
        self._client._post(message, self)


def _within(**figures: float | None) -> dict[str, float | None]:
    """Figures as the protocol takes them; a cancel that it refuses would be lost."""
    return {
        name: None if value is None else min(max(value, 0), _MOST_MS)
        for name, value in figures.items()
    }


def _set_wav_sizes(file: IO[bytes]) -> None:
    """Replace a stream's "unknown" sizes, now that they are known."""
    size = file.tell()
    for offset, value in ((4, size - 8), (40, size - 44)):
        file.seek(offset)
        file.write(value.to_bytes(4, "little"))
