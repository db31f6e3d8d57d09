"""The TTS: a stream becomes one context of rtts.v1, its audio and words become frames.

The server cuts the text, so every token goes out as it comes. Connections, reconnecting and resuming
are `rtts_client`'s.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from dataclasses import dataclass, replace
from typing import Any

from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    APIConnectOptions,
    APITimeoutError,
    tts,
    utils,
)
from livekit.agents.types import NOT_GIVEN, NotGivenOr
from livekit.plugins.rtts.errors import api_error
from livekit.plugins.rtts.words import Words
from rtts_client import Audio, Context, ContextEvent, Done, Format, Marks, Pool, RttsError

# Who waits for a lost connection is in a call; after this long the reply fails with an error.
GIVE_UP_S = 10.0
# One attempt to connect, so that LiveKit can make another within its own ten seconds.
OPEN_TIMEOUT_S = 4.0
# A reply with nothing to speak in it, as an emoji, is this much silence; LiveKit takes one without any
# audio for a failure and says it again.
SILENCE_S = 0.1


@dataclass(frozen=True, slots=True)
class _Settings:
    voice: str | None
    language: str | None
    instructions: str | None
    speed: float | None
    seed: int | None
    budget_ms: float | None


class TTS(tts.TTS[Any]):
    """Text-to-speech of an rtts server."""

    def __init__(
        self,
        *,
        url: str,
        api_key: str | None = None,
        sample_rate: int = 24_000,
        voice: str | None = None,
        language: str | None = None,
        instructions: str | None = None,
        speed: float | None = None,
        seed: int | None = None,
        budget_ms: float | None = None,
    ) -> None:
        """Make one; what is not said is the server's choice.

        Args:
            url: `ws://host:8765/v1/tts`, or wss.
            api_key: Where the server asks for one.
            sample_rate: Hz.
            voice: One of the server's voices.
            language: BCP 47 tag or English name.
            instructions: How to speak, in words, for models that take them.
            speed: 1 is the voice's own.
            seed: Fixes every random draw of the model.
            budget_ms: First-packet budget; the server records whether it was kept.
        """
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self._settings = _Settings(voice, language, instructions, speed, seed, budget_ms)
        self._pool = Pool(url, api_key=api_key, open_timeout_s=OPEN_TIMEOUT_S, give_up_s=GIVE_UP_S)
        self._streams: weakref.WeakSet[SynthesizeStream] = weakref.WeakSet()
        self._model = "rtts"

    @property
    def model(self) -> str:
        """What the server calls its model; "rtts" before the first connection."""
        return self._model

    @property
    def provider(self) -> str:
        """Whose speech it is."""
        return "rtts"

    def update_options(
        self,
        *,
        voice: NotGivenOr[str | None] = NOT_GIVEN,
        language: NotGivenOr[str | None] = NOT_GIVEN,
        instructions: NotGivenOr[str | None] = NOT_GIVEN,
        speed: NotGivenOr[float | None] = NOT_GIVEN,
        seed: NotGivenOr[int | None] = NOT_GIVEN,
        budget_ms: NotGivenOr[float | None] = NOT_GIVEN,
    ) -> None:
        """Change settings from the next stream on."""
        wanted = {
            "voice": voice,
            "language": language,
            "instructions": instructions,
            "speed": speed,
            "seed": seed,
            "budget_ms": budget_ms,
        }
        given = {name: value for name, value in wanted.items() if utils.is_given(value)}
        self._settings = replace(self._settings, **given)  # type: ignore[arg-type]

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> SynthesizeStream:
        """A reply whose text comes in pieces."""
        stream = SynthesizeStream(tts=self, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        """A reply whose text is there."""
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def prewarm(self) -> None:
        """Begin to connect, so that the first reply need not."""
        self._pool.prewarm()

    async def aclose(self) -> None:
        """End every stream and every connection."""
        await asyncio.gather(*(stream.aclose() for stream in list(self._streams)))
        await self._pool.aclose()

    async def _context(self, timeout_s: float) -> tuple[Context, bool]:
        """A context, and whether its connection was there already."""
        is_reused = self._pool.n_connections > 0
        async with asyncio.timeout(timeout_s):
            client = await self._pool.open()
        self._model = client.ready.model or "rtts"
        settings = self._settings
        context = client.context(
            format=Format("pcm_s16le", "raw", self._sample_rate),
            voice=settings.voice,
            language=settings.language,
            instructions=settings.instructions,
            speed=settings.speed,
            seed=settings.seed,
            budget_ms=settings.budget_ms,
        )
        return context, is_reused


class SynthesizeStream(tts.SynthesizeStream):
    """One reply: push its tokens, iterate its audio. Closing it early is a barge-in."""

    _tts: TTS

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = utils.shortuuid("rtts_")
        output_emitter.initialize(
            request_id=request_id,
            sample_rate=self._tts.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=True,
        )
        first = await self._first_text()
        if first is None:
            return
        output_emitter.start_segment(segment_id=request_id)
        self._mark_started()
        try:
            await self._speak(first, output_emitter)
        except RttsError as error:
            raise api_error(error, request_id) from error
        except TimeoutError:
            raise APITimeoutError("rtts: nothing came in time") from None
        output_emitter.end_segment()

    async def _first_text(self) -> str | None:
        async for piece in self._input_ch:
            if isinstance(piece, str):
                return piece
        return None

    async def _speak(self, first: str, emitter: tts.AudioEmitter) -> None:
        asked_at = time.perf_counter()
        context, self._connection_reused = await self._tts._context(self._conn_options.timeout)
        self._acquire_time = time.perf_counter() - asked_at
        words = Words()
        async with context:  # leaving it early, when this task is cancelled, cancels the reply
            words.say(first)
            await context.send(first)
            feeding = asyncio.create_task(self._feed(context, words))
            try:
                await self._read(context, words, feeding, emitter)
            finally:
                await utils.aio.cancel_and_wait(feeding)

    async def _feed(self, context: Context, words: Words) -> None:
        """Send tokens as they come, up to the end of the segment, which is the reply's."""
        async for piece in self._input_ch:
            if not isinstance(piece, str):
                break
            words.say(piece)
            await context.send(piece)
        await context.end()

    async def _read(
        self,
        context: Context,
        words: Words,
        feeding: asyncio.Task[None],
        emitter: tts.AudioEmitter,
    ) -> None:
        events = aiter(context)
        while True:
            # Before the end silence may be the language model's.
            limit_s = self._conn_options.timeout + GIVE_UP_S if feeding.done() else None
            async with asyncio.timeout(limit_s):
                event = await anext(events, None)
            if event is None:
                return
            self._emit(event, words, emitter)

    def _emit(self, event: ContextEvent, words: Words, emitter: tts.AudioEmitter) -> None:
        match event:
            case Audio():
                emitter.push(event.data)
            case Marks():
                emitter.push_timed_transcript(words.timed(event))
            case Done():
                if not event.samples:
                    emitter.push(bytes(2 * int(SILENCE_S * self._tts.sample_rate)))
                emitter.push_timed_transcript(words.rest(event.audio_ms / 1000))
            case _:
                pass
