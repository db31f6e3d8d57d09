"""Making ready: voices loaded, and one real utterance spoken, before anybody is let in.

An engine that says it is ready has not yet met a session: the splitter's tables, libopus and the
message encoder are all slower the first time. So the server speaks to itself once, through a
session and an encoder, and only then is ready. Knows nothing about sockets.
"""

from __future__ import annotations

import asyncio
import logging

from rtts.engine.interface import Capabilities, Engine, LoadVoice, VoiceFailed, VoiceLoaded
from rtts.errors import ConfigError, EngineError, UnknownVoiceError, UnsupportedLanguageError
from rtts.protocol import native
from rtts.protocol.events import Audio, Done, Error, Start, Text
from rtts.server.hub import Hub, SessionHost
from rtts.session import DeliveryMarker
from rtts.voices.registry import resolve_voice

# An engine from which nothing comes for this long is given up. It is not the time for the whole:
# a large model on a CPU takes minutes for a sentence, and gets there.
VOICE_TIMEOUT_S = 120.0
SPEECH_TIMEOUT_S = 60.0
RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)

_CONTEXT = "prewarm"
_ENGLISH = "Hello, this is a test. It is over soon."
_SENTENCES = {
    "zh": "你好，这是一个测试。马上就结束。",
    "ja": "こんにちは、これはテストです。すぐに終わります。",
    "ko": "안녕하세요, 이것은 시험입니다. 곧 끝납니다.",
    "de": "Hallo, das ist ein Test. Er ist gleich vorbei.",
    "fr": "Bonjour, ceci est un essai. Il finit bientôt.",
    "ru": "Здравствуйте, это проверка. Она скоро закончится.",
    "pt": "Olá, isto é um teste. Acaba em breve.",
    "es": "Hola, esto es una prueba. Termina pronto.",
    "it": "Ciao, questa è una prova. Finisce presto.",
}

log = logging.getLogger(__name__)


class Prewarmer:
    """Loads voices and speaks once.

    Owner: event loop.

    Attributes:
        failed_voices: Configured voices that could not be loaded.
        trouble: Why the last attempt failed, or "".
    """

    def __init__(self, hub: Hub, engine: Engine, voices: tuple[str, ...]) -> None:
        self.failed_voices: dict[str, str] = {}
        self.trouble = ""
        self._hub = hub
        self._engine = engine
        self._voices = voices
        self._loading: dict[str, asyncio.Future[VoiceLoaded | VoiceFailed]] = {}

    def check(self, capabilities: Capabilities) -> None:
        """Refuse voices and languages that do not exist.

        Raises:
            ConfigError: A configured voice is not one of the engine's, or does not speak the
                configured language.
        """
        options = self._hub.options
        try:
            resolve_voice(capabilities, options.voice, options.language)
        except UnsupportedLanguageError as error:
            raise ConfigError(f"session.language: {error.message}") from error
        except UnknownVoiceError as error:
            raise ConfigError(f"session.voice: {error.message}") from error
        for voice in self._voices:
            if capabilities.voice(voice) is None:
                known = ", ".join(each.id for each in capabilities.voices[:20])
                raise ConfigError(
                    f"server.prewarm_voices: {voice!r} is not one of "
                    f"{capabilities.engine}'s; it has {known}"
                )

    def on_voice(self, event: VoiceLoaded | VoiceFailed) -> None:
        """A voice was loaded, or could not be."""
        waiting = self._loading.pop(event.voice, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(event)

    async def run(self, capabilities: Capabilities) -> None:
        """Prewarm; try again until it works.

        Raises:
            ConfigError: A configured voice does not exist.
        """
        self.check(capabilities)
        for attempt in range(1_000_000):
            try:
                await self._load_voices(capabilities)
                await self._speak(capabilities)
            except (EngineError, TimeoutError) as error:
                self.trouble = str(error) or "the engine did not answer in time"
                wait_s = RETRY_S[min(attempt, len(RETRY_S) - 1)]
                log.error("prewarming failed, again in %g s: %s", wait_s, self.trouble)
                await asyncio.sleep(wait_s)
            else:
                self.trouble = ""
                return

    async def _load_voices(self, capabilities: Capabilities) -> None:
        default = self._hub.options.voice or capabilities.default_voice
        voices = tuple(dict.fromkeys((default, *self._voices)))
        loop = asyncio.get_running_loop()
        self.failed_voices.clear()
        self._loading = {voice: loop.create_future() for voice in voices}
        waiting = dict(self._loading)
        self._engine.submit([LoadVoice(voice) for voice in voices])
        for voice, answer in waiting.items():
            event = await asyncio.wait_for(answer, VOICE_TIMEOUT_S)
            if isinstance(event, VoiceFailed):
                log.error("voice %s could not be loaded: %s", voice, event.message)
                self.failed_voices[voice] = event.message
        if default in self.failed_voices:
            reason = self.failed_voices[default]
            raise EngineError(f"the default voice {default!r} could not be loaded: {reason}")

    async def _speak(self, capabilities: Capabilities) -> None:
        voice = capabilities.voice(self._hub.options.voice or capabilities.default_voice)
        language = voice.languages[0] if voice is not None and voice.languages else "en"
        rehearsal = _Rehearsal(self._hub)
        try:
            async with asyncio.timeout(SPEECH_TIMEOUT_S) as limit:
                done = await rehearsal.speak(_SENTENCES.get(language[:2], _ENGLISH), limit)
        finally:
            rehearsal.close()
        if done.reason != "completed" or done.audio_ms <= 0:
            why = rehearsal.complaint or done.reason
            raise EngineError(f"the first utterance was not spoken: {why}")


class _Rehearsal:
    """An outlet without a socket: takes a session's messages, encodes them and drops them."""

    def __init__(self, hub: Hub) -> None:
        self.complaint = ""
        self._hub = hub
        self._codec = native.NativeCodec()
        self._done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._host: SessionHost | None = None
        self._limit: asyncio.Timeout | None = None

    async def speak(self, text: str, limit: asyncio.Timeout) -> Done:
        """Say `text` and wait for the end of it; audio that comes puts the limit off."""
        hub = self._hub
        self._limit = limit
        self._host = host = hub.open(self)
        host.is_prewarming = True
        for message in (Start(ctx=_CONTEXT), Text(ctx=_CONTEXT, text=text, end=True)):
            host.session.receive(message, hub.clock())
            hub.pump(host)
        return await self._done

    def flush(self) -> None:
        """See `Outlet`."""
        if self._host is None:
            return
        session = self._host.session
        while (message := session.next_message(self._hub.clock())) is not None:
            if not isinstance(message, DeliveryMarker):
                self._codec.encode(message)  # type: ignore[arg-type]
            session.sent(message, self._hub.clock())
            if isinstance(message, Audio):
                self._put_off()
            if isinstance(message, DeliveryMarker):
                session.delivered(message.marker, self._hub.clock())
            if isinstance(message, Error):
                self.complaint = message.message
            if isinstance(message, Done) and not self._done.done():
                self._done.set_result(message)

    def _put_off(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + SPEECH_TIMEOUT_S)

    def replaced(self) -> None:
        """See `Outlet`. Nobody knows the token."""

    def failed(self) -> None:
        """See `Outlet`."""
        if not self._done.done():
            self._done.set_exception(EngineError("the session failed"))

    def close(self) -> None:
        """Leave no session behind, and no utterance."""
        host, self._host = self._host, None
        if host is not None:
            self._hub.stop(host)
            self._hub.discard(host)
        if self._done.done() and not self._done.cancelled():
            self._done.exception()  # seen
