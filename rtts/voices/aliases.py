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
from rtts.voices.registry import resolve_voice

# Voices of Qwen3-TTS for names of which no more is known than this.
_SHE, _HE = ("Vivian", "Serena"), ("Ryan", "Aiden")


def _all(names: str, candidates: tuple[str, ...], form: str = "{}") -> dict[str, tuple[str, ...]]:
    return {form.format(name): candidates for name in names.split(", ")}


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
    # The hosted ones, https://www.alibabacloud.com/help/en/model-studio/qwen-tts (2026), less those above.
    "ono anna": ("ono_anna",),
    **_all("cherry, chelsie, momo, maia, bella, jennifer, katerina, mia, bellona, bunny", _SHE),
    **_all("elias, nini, ebona, seren, stella, sonrisa, jada, sunny, kiki", _SHE),
    **_all("ethan, moon, kai, nofish, eldric sage, mochi, vincent, neil, arthur, pip, bodega", _HE),
    **_all("alek, dolce, lenn, emilien, andre, radio gol, li, marcus, roy, peter, rocky", _HE),
})  # fmt: skip

# The same for names that come in families; they are not listed as names a client may use.
KNOWN_PATTERNS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    # Deepgram, https://developers.deepgram.com/docs/tts-models. Those not here are the default voice.
    **_all("asteria, luna, stella, athena, hera, amalthea, andromeda", _SHE, "aura*-{}-en"),
    **_all("aurora, callista, cora, cordelia, delia, electra, harmonia", _SHE, "aura*-{}-en"),
    **_all("helena, iris, janus, juno, minerva, ophelia, pandora", _SHE, "aura*-{}-en"),
    **_all("phoebe, selene, thalia, theia, vesta", _SHE, "aura*-{}-en"),
    **_all("alexis, haley, heather", _SHE, "flux-{}-en"),
    **_all("angus, arcas, helios, orion, orpheus, perseus, zeus", _HE, "aura*-{}-en"),
    **_all("apollo, aries, atlas, draco, hermes, hyperion, jupiter", _HE, "aura*-{}-en"),
    **_all("mars, neptune, odysseus, pluto, saturn", _HE, "aura*-{}-en"),
    **_all("antonia, carina, celeste, diana, estrella, gloria", _SHE, "aura-2-{}-es"),
    **_all("olivia, selena, silvia", _SHE, "aura-2-{}-es"),
    **_all("alvaro, aquila, javier, luciano, nestor, sirio, valerio", _HE, "aura-2-{}-es"),
    **_all("aurelia, elara, kara, lara, viktoria", _SHE, "aura-2-{}-de"),
    **_all("fabian, julius", _HE, "aura-2-{}-de"),
    **_all("beatrix, cornelia, daphne, hestia, leda, rhea", _SHE, "aura-2-{}-nl"),
    **_all("lars, roman, sander", _HE, "aura-2-{}-nl"),
    **_all("agathe", _SHE, "aura-2-{}-fr"),
    **_all("hector", _HE, "aura-2-{}-fr"),
    **_all("cinzia, demetra, livia, maia, melia", _SHE, "aura-2-{}-it"),
    **_all("cesare, dionisio, elio, flavio", _HE, "aura-2-{}-it"),
    **_all("ama, izanami, uzume", _SHE, "aura-2-{}-ja"),
    **_all("ebisu, fujin", _HE, "aura-2-{}-ja"),
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
            self._exact[name] = self._first(candidates)
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
        self._patterns += [(name, self._first(voices)) for name, voices in KNOWN_PATTERNS.items()]
        self._models = {name.casefold(): model for name, model in options.models.items()}
        self._model_names = tuple(options.models)

    def _first(self, candidates: Sequence[str]) -> str | None:
        """The first of them that is a voice here."""
        found = (self._own.get(candidate.casefold()) for candidate in candidates)
        return next((voice for voice in found if voice), None)

    def voice(self, name: str | None, *, or_default: bool) -> str | None:
        """The engine's voice for a client's name, whatever its case; None is the default voice.

        The engine's own names come first, then the table's, then patterns, the operator's first.

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

    def speaker(self, voice: str | None, language: str | None) -> tuple[str, str]:
        """See `rtts.protocol.dialect.Names`."""
        found, tag = resolve_voice(self._capabilities, voice, language)
        return found.id, tag

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
