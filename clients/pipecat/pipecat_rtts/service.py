"""The service: a turn becomes one context of rtts.v1, its audio and words become frames.

The server cuts the text, so every token goes out as it comes. Connections, reconnecting and resuming
are `rtts_client`'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.utils.types import NOT_GIVEN, NotGiven
from rtts_client import Audio, ContextEvent, Done, Format, Marks, Pool, RttsError

from pipecat_rtts.errors import category_of
from pipecat_rtts.reply import Outcome, Reply, split_by_spacing

# Who waits for a lost connection is in a call; after this long the turn fails with an error.
GIVE_UP_S = 10.0
OPEN_TIMEOUT_S = 4.0  # one attempt to connect
# rtts says when a reply is over. Pipecat's own guess, by silence, would cut a slow one short.
NEVER_S = 3600.0
# A turn with nothing to speak in it, as an emoji, is this much silence; without any audio it would
# count as a failure.
SILENCE_S = 0.1


@dataclass
class RttsTTSSettings(TTSSettings):
    """What can be changed while the pipeline runs; it counts from the next turn on.

    Parameters:
        instructions: How to speak, in words, for models that take them.
        speed: 1 is the voice's own.
        seed: Fixes every random draw of the model.
        budget_ms: First-packet budget; the server records whether it was kept.
    """

    instructions: str | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    speed: float | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    seed: int | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    budget_ms: float | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)


class RttsTTSService(TTSService):
    """Text-to-speech of an rtts server.

    Of the event handlers of a TTS service `on_connected` and `on_connection_error` say how opening the first
    connection went, and `on_disconnected` that the pipeline has ended.
    """

    Settings = RttsTTSSettings
    _settings: RttsTTSSettings

    def __init__(
        self,
        *,
        url: str,
        api_key: str | None = None,
        sample_rate: int | None = None,
        text_aggregation_mode: TextAggregationMode = TextAggregationMode.TOKEN,
        settings: RttsTTSSettings | None = None,
        **kwargs: Any,
    ) -> None:
        """Make one.

        Args:
            url: `ws://host:8765/v1/tts`, or wss.
            api_key: Where the server asks for one.
            sample_rate: Hz; by default the pipeline's.
            text_aggregation_mode: TOKEN, so that the server cuts. SENTENCE has Pipecat collect
                sentences first and speak later; only filters that need whole ones want it.
            settings: Voice, language and so on; by default the server's.
            kwargs: For `TTSService`: `text_transforms`, `skip_text_types`, ...
        """
        wanted = self.Settings(
            model=None,
            voice=None,
            language=None,
            instructions=None,
            speed=None,
            seed=None,
            budget_ms=None,
        )
        if settings is not None:
            wanted.apply_update(settings)
        # A failed turn is reported by itself, so counting silent ones would only add an end for good
        # to a server's restart.
        kwargs = {"max_consecutive_zero_audio_contexts": 0} | kwargs
        super().__init__(
            text_aggregation_mode=text_aggregation_mode,
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=False,
            stop_frame_timeout_s=NEVER_S,
            append_trailing_space=True,  # between sentences; tokens have their own
            sample_rate=sample_rate,
            settings=wanted,
            **kwargs,
        )
        self._url, self._api_key = url, api_key
        self._pool = self._new_pool()
        self._replies: dict[str, Reply] = {}

    @property
    def supports_processing_metrics(self) -> bool:
        """No: a turn is spoken long after `run_tts` returned."""
        return False

    def can_generate_metrics(self) -> bool:
        """Yes: time to first byte, and characters."""
        return True

    def language_to_service_language(self, language: Language) -> str | None:
        """The tag itself: rtts takes BCP 47."""
        return str(language.value)

    # --- what the pipeline asks for ----------------------------------------------------------

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Begin to connect, so that the first turn need not."""
        await super().setup(setup)
        if self._pool.is_closed:  # the service was in another pipeline before
            self._pool = self._new_pool()
        self.create_task(self._connect(), "connect")

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Send text of a turn; its audio comes by itself."""
        reply = self._replies.get(context_id)
        if reply is None:
            reply = self._replies[context_id] = Reply()
            reply.task = self.create_task(self._speak(context_id, reply), "speak")
        await reply.say(text)
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """The turn has no more text."""
        context_id = context_id or self.get_active_audio_context_id()
        if context_id is None:
            return
        reply = self._replies.get(context_id)
        if reply is None:  # nothing was asked of the server: Pipecat has given up on this service
            await self._close(context_id, Outcome.FAILED)
        elif not reply.has_ended:
            await reply.end()
            if reply.outcome is not Outcome.RUNNING:
                await self._close(context_id, reply.outcome)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Somebody speaks: stop the server."""
        await super().on_audio_context_interrupted(context_id)
        await self._drop(context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        """All of a turn was handed on."""
        await super().on_audio_context_completed(context_id)
        await self._drop(context_id)

    async def stop(self, frame: EndFrame) -> None:
        """Speak what was said, then leave."""
        for context_id in self.get_audio_contexts():
            await self.flush_audio(context_id)
        await super().stop(frame)
        await self._leave()

    async def cancel(self, frame: CancelFrame) -> None:
        """Leave at once."""
        await super().cancel(frame)
        await self._leave()

    async def cleanup(self) -> None:
        """Leave, however the pipeline ended."""
        await super().cleanup()
        await self._leave()

    # --- replies -----------------------------------------------------------------------------

    def _new_pool(self) -> Pool:
        return Pool(
            self._url, api_key=self._api_key, open_timeout_s=OPEN_TIMEOUT_S, give_up_s=GIVE_UP_S
        )

    async def _connect(self) -> None:
        try:
            await self._pool.open()
        except RttsError as error:
            await self._call_event_handler("on_connection_error", str(error))
            await self._report(error)
        else:
            await self._call_event_handler("on_connected")

    async def _speak(self, context_id: str, reply: Reply) -> None:
        """Read a reply to its end; being cancelled cancels it on the server."""
        try:
            async with await self._pool.context(**self._options()) as context:
                await reply.begin(context)
                async for event in context:
                    await self._play(context_id, event)
            reply.outcome = Outcome.SPOKEN
        except RttsError as error:
            reply.outcome = Outcome.FAILED
            await self._report(error)
        if reply.has_ended:
            await self._close(context_id, reply.outcome)

    async def _play(self, context_id: str, event: ContextEvent) -> None:
        match event:
            case Audio():
                await self._append_audio(context_id, event.data)
            case Marks():
                for is_unspaced, words in split_by_spacing(event):
                    await self.add_word_timestamps(
                        words, context_id, includes_inter_frame_spaces=is_unspaced
                    )
            case Done(samples=0):
                await self._append_audio(context_id, bytes(2 * int(SILENCE_S * self.sample_rate)))
            case _:
                pass

    async def _append_audio(self, context_id: str, audio: bytes) -> None:
        frame = TTSAudioRawFrame(audio, self.sample_rate, 1, context_id=context_id)
        await self.append_to_audio_context(context_id, frame)

    async def _close(self, context_id: str, outcome: Outcome) -> None:
        """Nothing more comes for an audio context."""
        if not self.audio_context_available(context_id):
            return
        if outcome is Outcome.FAILED:
            # At the stop Pipecat takes every word for spoken whose time it was not told.
            others = set(self.get_audio_contexts()) - {context_id}
            self._aggregated_frame_sequencer.clear(keep_contexts=others)
        await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
        await self.remove_audio_context(context_id)

    async def _drop(self, context_id: str) -> None:
        """Forget a reply; if it runs, it is cancelled."""
        reply = self._replies.pop(context_id, None)
        if reply is not None and reply.task is not None and reply.outcome is Outcome.RUNNING:
            await self.cancel_task(reply.task)

    async def _leave(self) -> None:
        for context_id in list(self._replies):
            await self._drop(context_id)
        if not self._pool.is_closed:
            await self._pool.aclose()
            await self._call_event_handler("on_disconnected")

    async def _report(self, error: RttsError) -> None:
        await self.push_error(f"rtts: {error}", exception=error, category=category_of(error))

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "format": Format("pcm_s16le", "raw", self.sample_rate),
            "voice": settings.voice,
            "language": settings.language,
            "instructions": settings.instructions,
            "speed": settings.speed,
            "seed": settings.seed,
            "budget_ms": settings.budget_ms,
        }
