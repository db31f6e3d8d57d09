"""Where users' voices meet the engine: kept in the store, made for it, added to it, loaded.

A voice is offered to clients once the engine has spoken for it (`VoiceLoaded`); one that turns out
damaged is made again once, and reported. Knows nothing about HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rtts.engine.interface import (
    AddVoice,
    Capabilities,
    Engine,
    LoadVoice,
    RemoveVoice,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.errors import (
    BadRequestError,
    EngineDeadError,
    RttsError,
    UnknownVoiceError,
    UnsupportedError,
    UtteranceError,
)
from rtts.server.voice_making import VoiceMaker
from rtts.session import Service
from rtts.voices.options import VoiceOptions
from rtts.voices.recording import read_recording
from rtts.voices.store import StoredVoice, VoiceStore

LOAD_TIMEOUT_S = 120.0
"""As for the voices that are loaded before ready."""

log = logging.getLogger(__name__)


class VoiceDesk:
    """Takes, keeps, gives back and removes voices.

    Owner: event loop.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        service: Service,
        store: VoiceStore,
        maker: VoiceMaker | None,
        options: VoiceOptions,
        on_change: Callable[[], None],
    ) -> None:
        """Take what it works with.

        Args:
            maker: Makes recordings into what the engine takes; None where it clones nothing.
            on_change: Called when the voices that can be asked for have changed.
        """
        self.store = store
        self._engine, self._service = engine, service
        self._maker, self._options, self._on_change = maker, options, on_change
        self._waiting: dict[str, asyncio.Future[VoiceLoaded | VoiceFailed]] = {}
        self._remade: set[str] = set()  # tried once more in this life
        self._failed: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_restored = False
        self._adding = asyncio.Lock()

    # --- the engine -----------------------------------------------------------------------------

    def restore(self, capabilities: Capabilities) -> None:
        """Add what the store has, when the engine is ready for the first time."""
        if self._is_restored:
            return  # its host adds them again after a death
        self._is_restored = True
        for folder, why in self.store.damaged.items():
            log.error("voice %s is damaged and left out: %s", folder, why)
        for voice in self.store.voices.values():
            if not _can(capabilities, voice.kind):
                continue
            if voice.kind == "clone" and not self._made(voice).exists():
                self._remake(voice)
            else:
                self._offer(voice, capabilities)

    def _offer(self, voice: StoredVoice, capabilities: Capabilities) -> None:
        self._engine.submit([self._addition(voice, capabilities)])
        self._service.add_voice(voice.as_voice(capabilities.added_languages))

    def _addition(self, voice: StoredVoice, capabilities: Capabilities) -> AddVoice:
        path = str(self._made(voice)) if voice.kind == "clone" else ""
        made = voice.as_voice(capabilities.added_languages)
        return AddVoice(made, path, voice.description)

    def _made(self, voice: StoredVoice) -> Path:
        assert self._maker is not None, "an engine that clones has a maker"
        return self.store.made(voice.id, self._maker.fingerprint)

    def on_event(self, event: VoiceLoaded | VoiceFailed) -> None:
        """The engine says what became of a voice."""
        waiting = self._waiting.pop(event.voice, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(event)
        elif isinstance(event, VoiceFailed) and event.voice in self.store.voices:
            self._on_damaged(self.store.voices[event.voice], event.message)

    def _on_damaged(self, voice: StoredVoice, why: str) -> None:
        log.error("voice %s (%s) could not be added: %s", voice.id, voice.name, why)
        self._service.remove_voice(voice.id)
        self._on_change()
        self._failed[voice.id] = why
        if voice.kind == "clone" and voice.id not in self._remade:
            self._remade.add(voice.id)
            self._made(voice).unlink(missing_ok=True)
            self._remake(voice)

    def _remake(self, voice: StoredVoice) -> None:
        task = asyncio.create_task(self._make_and_offer(voice))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _make_and_offer(self, voice: StoredVoice) -> None:
        try:
            await self._make(voice)
        except RttsError as error:
            log.error("voice %s (%s) cannot be had: %s", voice.id, voice.name, error.message)
            self._failed[voice.id] = error.message
            return
        capabilities = self._service.capabilities
        if capabilities is not None and voice.id in self.store.voices:
            log.info("voice %s (%s) was made again", voice.id, voice.name)
            self._failed.pop(voice.id, None)
            self._offer(voice, capabilities)
            self._on_change()

    @property
    def troubles(self) -> list[str]:
        """What is wrong with voices of the store, in sentences."""
        damaged = [f"voice {name} is damaged: {why}" for name, why in self.store.damaged.items()]
        failed = [f"voice {name} cannot be had: {why}" for name, why in self._failed.items()]
        return [*damaged, *failed]

    async def close(self) -> None:
        """Give up what is being made."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what users ask for ---------------------------------------------------------------------

    async def clone(
        self, *, name: str, data: bytes, transcript: str, language: str, description: str
    ) -> tuple[StoredVoice, bool]:
        """Make a voice of a recording.

        Returns:
            The voice, and whether it is new.

        Raises:
            UnsupportedError: The engine clones no voices.
            BadRequestError: The recording, the transcript or the name will not do.
            RttsError: The engine could not take it.
        """
        capabilities = self._check("clone", name, language)
        pcm = await asyncio.to_thread(read_recording, data, transcript, self._options)
        return await self._keep(capabilities, name, "clone", language, transcript, description, pcm)

    async def design(
        self, *, name: str, description: str, language: str
    ) -> tuple[StoredVoice, bool]:
        """Make a voice of a description. Returns and raises as `clone`."""
        capabilities = self._check("design", name, language)
        if not description.strip():
            raise BadRequestError("description: say in words how the voice sounds")
        return await self._keep(capabilities, name, "design", language, "", description, b"")

    def _check(self, kind: Literal["clone", "design"], name: str, language: str) -> Capabilities:
        capabilities = self._service.capabilities
        if capabilities is None or not self._service.is_engine_up:
            raise EngineDeadError("the engine is not up", retry_after_s=1.0)
        if not _can(capabilities, kind):
            does = "clones no voices" if kind == "clone" else "makes no voices from descriptions"
            raise UnsupportedError(f"the model {capabilities.model} {does}")
        if language and language not in capabilities.added_languages:
            known = ", ".join(capabilities.added_languages)
            raise BadRequestError(f"language: {language!r} is not one of {known}")
        taken = capabilities.voice(name)
        if taken is not None and taken.kind == "preset":
            raise BadRequestError(f"name: {name!r} is a voice of the model")
        return capabilities

    async def _keep(
        self,
        capabilities: Capabilities,
        name: str,
        kind: Literal["clone", "design"],
        language: str,
        transcript: str,
        description: str,
        pcm: bytes,
    ) -> tuple[StoredVoice, bool]:
        async with self._adding:
            known = set(self.store.voices)
            voice = await asyncio.to_thread(
                self._store, name, kind, language, transcript, description, pcm
            )
            is_new = voice.id not in known
            offered = self._service.capabilities
            if not is_new and offered is not None and offered.voice(voice.id) is not None:
                return voice, False
            try:
                await self._make_and_load(voice, capabilities)
            except BaseException:
                if is_new:
                    self._drop(voice.id)
                raise
            self._failed.pop(voice.id, None)
            self._service.add_voice(voice.as_voice(capabilities.added_languages))
            self._on_change()
            return voice, is_new

    def _store(
        self,
        name: str,
        kind: Literal["clone", "design"],
        language: str,
        transcript: str,
        description: str,
        pcm: bytes,
    ) -> StoredVoice:
        try:
            return self.store.add(
                name=name,
                kind=kind,
                language=language,
                transcript=transcript,
                description=description,
                pcm=pcm,
                created=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
                most=self._options.max_voices,
            )
        except OSError as error:
            raise UtteranceError(f"the voice could not be kept: {error.strerror}") from error

    async def _make(self, voice: StoredVoice) -> None:
        if voice.kind == "clone" and not self._made(voice).exists():
            assert self._maker is not None
            reference, made = self.store.reference(voice.id), self._made(voice)
            try:
                await self._maker.make(reference, made, voice.transcript, voice.language)
            except OSError as error:
                raise UtteranceError(f"the voice could not be made: {error.strerror}") from error

    async def _make_and_load(self, voice: StoredVoice, capabilities: Capabilities) -> None:
        try:
            await self._make(voice)
            await self._load([self._addition(voice, capabilities)], voice.id)
        except UtteranceError:
            self._check_kept(voice)  # which would be why
            raise
        self._check_kept(voice)

    def _check_kept(self, voice: StoredVoice) -> None:
        """Whether nobody has removed it while it was made."""
        if voice.id not in self.store.voices:
            raise BadRequestError(f"name: {voice.name!r} was removed before it was ready")

    async def _load(self, first: list[AddVoice], voice_id: str) -> float:
        """Returns seconds until the voice was warm."""
        answer: asyncio.Future[VoiceLoaded | VoiceFailed]
        answer = asyncio.get_running_loop().create_future()
        self._waiting[voice_id] = answer
        self._engine.submit([*first, LoadVoice(voice_id, pinned=False)])
        try:
            event = await asyncio.wait_for(answer, LOAD_TIMEOUT_S)
        except TimeoutError:
            raise UtteranceError("the engine did not load the voice in time") from None
        finally:
            self._waiting.pop(voice_id, None)
        if isinstance(event, VoiceFailed):
            raise UtteranceError(f"the engine could not load the voice: {event.message}")
        return event.load_s

    async def prewarm(self, voice_id: str) -> float:
        """Load a voice, so that its next utterance finds it warm; returns the seconds it took.

        Raises:
            UnknownVoiceError: There is none.
        """
        capabilities = self._service.capabilities
        voice = None if capabilities is None else capabilities.voice(voice_id)
        if voice is None:
            raise UnknownVoiceError(f"there is no voice {voice_id[:64]!r}")
        return await self._load([], voice.id)

    def remove(self, voice_id: str) -> None:
        """Forget a voice; what it is speaking it finishes.

        Raises:
            UnknownVoiceError: There is none.
            BadRequestError: It is the model's own.
        """
        voice = self.store.voices.get(voice_id) or self.store.named(voice_id)
        if voice is None:
            capabilities = self._service.capabilities
            if capabilities is not None and capabilities.voice(voice_id) is not None:
                raise BadRequestError(f"voice {voice_id!r} is the model's own")
            raise UnknownVoiceError(f"there is no voice {voice_id[:64]!r}")
        self._drop(voice.id)
        self._on_change()

    def _drop(self, voice_id: str) -> None:
        if voice_id in self.store.voices:
            self.store.remove(voice_id)
        self._engine.submit([RemoveVoice(voice_id)])
        self._service.remove_voice(voice_id)
        self._failed.pop(voice_id, None)


def _can(capabilities: Capabilities, kind: str) -> bool:
    return capabilities.clones_voices if kind == "clone" else capabilities.designs_voices
