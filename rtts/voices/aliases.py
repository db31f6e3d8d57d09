"""Foreign names: what clients of other services call their voices and models, and what that is here.

The order of `AliasTable.voice` is the whole policy. Knows nothing about protocols or files; the
engine's `Capabilities` say which voices there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from rtts.engine.interface import Capabilities
from rtts.errors import BadRequestError, UnknownVoiceError

# For each name a client may come with: the voices of our engines that resemble it, best first. What
# the engine does not have is passed over, and with none of them it is the default voice: so it is
# on the CPU, where the other voices (Kokoro's) are ten times as much work.
KNOWN_VOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    # OpenAI, https://platform.openai.com/docs/guides/text-to-speech
    "alloy": ("Ryan",),
    "ash": ("Aiden",),
    "ballad": ("Ryan",),
    "cedar": ("Aiden",),
    "coral": ("Vivian",),
    "echo": ("Ryan",),
    "fable": ("Ryan",),
    "marin": ("Serena",),
    "nova": ("Vivian",),
    "onyx": ("Aiden",),
    "sage": ("Serena",),
    "shimmer": ("Serena",),
    "verse": ("Aiden",),
    # ElevenLabs' stock voices by id, https://elevenlabs.io/docs/capabilities/voices
    "21m00tcm4tlvdq8ikwam": ("Serena",),  # Rachel
    "exavitqu4vr4xnsdxmal": ("Vivian",),  # Sarah
    "xb0fdunxu5powfxdhcwa": ("Serena",),  # Charlotte
    "xb7hh8msujpsbsdyk0k2": ("Serena",),  # Alice
    "cgsgspj2msm6clmckdw9": ("Vivian",),  # Jessica
    "pfzp5jqg7iqjiquc4bku": ("Serena",),  # Lily
    "hpp4j3vqnfwauoo0d1us": ("Vivian",),  # Bella
    "jbfqncbsd6rmkjvdrzzb": ("Ryan",),  # George
    "pninz6obpgdqgcfmajgb": ("Ryan",),  # Adam
    "npczcjzi2devnbz1zqrb": ("Aiden",),  # Brian
    "ip95p4xokvk53goz742b": ("Aiden",),  # Chris
    "cjvigy5qzo86huf0owal": ("Eric",),  # Eric
    # The speakers of Qwen3-TTS, for clients of other servers of it when another engine speaks.
    "vivian": ("vivian",),
    "serena": ("serena",),
    "uncle_fu": ("uncle_fu",),
    "dylan": ("dylan",),
    "eric": ("eric",),
    "ryan": ("ryan",),
    "aiden": ("aiden",),
    "ono_anna": ("ono_anna",),
    "sohee": ("sohee",),
})  # fmt: skip

KNOWN_MODELS = (
    *("tts-1", "tts-1-hd", "gpt-4o-mini-tts"),
    *("eleven_flash_v2_5", "eleven_turbo_v2_5", "eleven_multilingual_v2", "eleven_flash_v2"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasOptions:
    """Names that clients of other services use, and what they mean here.

    Attributes:
        voices: Voices by foreign name. `*` and `?` stand for any characters, so `"*"` is every
            name that nothing else explains; an empty value is the default voice.
        models: The model by foreign name. A request for a name whose value is another model than
            the one that is loaded is refused; a name that is not here means the loaded one.
    """

    voices: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)


class AliasTable:
    """The names of one engine. See `rtts.protocol.dialect.Names`.

    Attributes:
        missing: Entries whose voice the engine does not have, in words; they mean nothing.
    """

    def __init__(self, options: AliasOptions, capabilities: Capabilities) -> None:
        """Join the operator's table and ours."""
        self.missing: list[str] = []
        self._capabilities = capabilities
        self._own = {v.name.casefold(): v.id for v in capabilities.voices if v.name}
        self._own |= {voice.id.casefold(): voice.id for voice in capabilities.voices}
        self._exact: dict[str, str | None] = {}
        for name, candidates in KNOWN_VOICES.items():
            found = (self._own.get(candidate.casefold()) for candidate in candidates)
            self._exact[name] = next((voice for voice in found if voice), None)
        self._patterns: list[tuple[str, str | None]] = []
        for name, target in options.voices.items():
            voice = self._own.get(target.casefold()) if target else None
            if target and voice is None:
                self.missing.append(
                    f"aliases.voices: {name!r} stands for {target!r}, which is no voice of the "
                    f"{capabilities.engine} engine"
                )
                continue
            if "*" in name or "?" in name:
                self._patterns.append((name.casefold(), voice))
            else:
                self._exact[name.casefold()] = voice
        # The longest pattern says most about a name.
        self._patterns.sort(key=lambda pattern: -len(pattern[0]))
        self._models = {name.casefold(): model for name, model in options.models.items()}
        self._model_names = tuple(options.models)

    def voice(self, name: str | None, *, or_default: bool) -> str | None:
        """The engine's voice for a client's name, whatever its case; None is the default voice.

        The engine's own names come first, then the table's, then its patterns.

        Raises:
            UnknownVoiceError: Nothing explains the name, unless `or_default`.
        """
        if not name:
            return None
        key = name.casefold()
        found = self._capabilities.voice(name)
        if found is not None:
            return found.id
        if key in self._own:
            return self._own[key]
        if key in self._exact:
            return self._exact[key]
        for pattern, voice in self._patterns:
            if fnmatchcase(key, pattern):
                return voice
        if or_default:
            return None
        known = [*dict.fromkeys(self._own.values()), *self._exact]
        nearest = difflib.get_close_matches(name, known, n=3) or known[:8]
        raise UnknownVoiceError(f"there is no voice {name[:64]!r}; try {', '.join(nearest)}")

    def model(self, name: str | None) -> str:
        """The model a name stands for: the one that is loaded.

        Raises:
            BadRequestError: The table says that the name is another model.
        """
        loaded = self._capabilities.model
        target = self._models.get((name or "").casefold()) or loaded
        if target.casefold() != loaded.casefold():
            raise BadRequestError(f"model: {name} is {target} here, and {loaded} is loaded")
        return loaded

    @property
    def voices(self) -> Mapping[str, str]:
        """Names beside the engine's own, and the voice each is."""
        default = self._capabilities.default_voice
        return {
            name: voice or default for name, voice in self._exact.items() if name not in self._own
        }

    @property
    def models(self) -> Sequence[str]:
        """Names of the model: its own, ours, the operator's."""
        loaded = self._capabilities.model
        names = dict.fromkeys((loaded, *KNOWN_MODELS, *self._model_names))
        return [name for name in names if (self._models.get(name.casefold()) or loaded) == loaded]
