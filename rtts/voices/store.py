"""The voices that users brought, in a folder: one folder each, named by what is in it.

    DIR/voice-1f3a…/voice.json      name, language, transcript or description, when
    DIR/voice-1f3a…/reference.wav   what a clone is made of, 24 kHz mono
    DIR/voice-1f3a…/made-….bin      what an engine made of it; can be made again

An id is the hash of what makes the voice, so the same recording is the same voice, and a folder whose
content is no longer what its name says is damaged. A voice appears whole or not at all: it is written
beside and renamed. Knows files, not engines or HTTP.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rtts.audio.wav import WavError, read_wav, wav_bytes
from rtts.engine.interface import Voice
from rtts.errors import BadRequestError, ConfigError, OverloadedError, UnsupportedError
from rtts.voices.recording import RATE_HZ

_RECORD, _REFERENCE = "voice.json", "reference.wav"
_LICENCE = "LicenseRef-own"  # whoever brought it knows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVoice:
    """One voice of a user.

    Attributes:
        kind: `clone` of a recording, or `design` by description.
        language: BCP 47 primary tag of the recording or design, or "".
        transcript: What is said in the recording, or "".
        description: Of a design, how it sounds; of a clone, a note for people.
        seconds: Length of the recording.
        created: When it came, RFC 3339 in UTC.
    """

    id: str
    name: str
    kind: Literal["clone", "design"]
    language: str
    transcript: str
    description: str
    seconds: float
    created: str

    def as_voice(self, languages: tuple[str, ...]) -> Voice:
        """As engines and clients know it.

        Args:
            languages: What the engine speaks; the voice's own comes first.
        """
        own = [tag for tag in languages if tag == self.language]
        return Voice(
            id=self.id,
            languages=tuple(dict.fromkeys((*own, *languages))),
            licence=_LICENCE,
            description=self.description,
            kind=self.kind,
            name=self.name,
        )


class VoiceStore:
    """The folder.

    Owner: event loop.

    Attributes:
        voices: By id, oldest first.
        damaged: Folders that hold no voice any more, and why.
    """

    def __init__(self, root: Path | None) -> None:
        """Read the folder; it need not exist yet. None keeps nothing.

        Raises:
            ConfigError: It cannot be read.
        """
        self._root = root
        self.voices: dict[str, StoredVoice] = {}
        self.damaged: dict[str, str] = {}
        if root is None:
            return
        try:
            folders = [path for path in root.glob("voice-*") if path.is_dir()]
        except OSError as error:
            raise ConfigError(f"voices.dir: {root}: {error.strerror}") from error
        found: list[StoredVoice] = []
        for folder in folders:
            try:
                found.append(_read(folder))
            except (OSError, ValueError, TypeError, KeyError, WavError) as error:
                self.damaged[folder.name] = f"{type(error).__name__}: {error}"
        for voice in sorted(found, key=lambda voice: (voice.created, voice.id)):
            self.voices[voice.id] = voice

    def named(self, name: str) -> StoredVoice | None:
        """The voice of that name, whatever its case."""
        key = name.casefold()
        return next((v for v in self.voices.values() if v.name.casefold() == key), None)

    def add(
        self,
        *,
        name: str,
        kind: Literal["clone", "design"],
        language: str,
        transcript: str = "",
        description: str = "",
        pcm: bytes = b"",
        created: str,
        most: int,
    ) -> StoredVoice:
        """Keep a voice; the same one again is the one that is there.

        Args:
            pcm: Of a clone, the recording: 24 kHz mono s16le.
            most: How many voices are kept.

        Raises:
            BadRequestError: Another voice has that name.
            OverloadedError: There are enough.
            UnsupportedError: There is no folder.
            OSError: It cannot be written.
        """
        digest = _digest(kind, language, transcript, description, pcm)
        known = self.voices.get(digest)
        if known is not None:
            return known
        if self._root is None:
            raise UnsupportedError("this server keeps no voices: voices.dir is not set")
        if len(self.voices) >= most:
            raise OverloadedError(f"{most} voices are kept, and voices.max_voices allows no more")
        if self.named(name) is not None:
            raise BadRequestError(f"name: there is a voice {name!r} already")
        voice = StoredVoice(
            id=digest,
            name=name,
            kind=kind,
            language=language,
            transcript=transcript,
            description=description,
            seconds=round(len(pcm) / 2 / RATE_HZ, 3),
            created=created,
        )
        self._write(self._root, voice, pcm)
        self.voices[voice.id] = voice
        self.damaged.pop(voice.id, None)
        return voice

    def _write(self, root: Path, voice: StoredVoice, pcm: bytes) -> None:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        try:
            (temporary / _RECORD).write_text(json.dumps(asdict(voice), indent=1), encoding="utf-8")
            if pcm:
                (temporary / _REFERENCE).write_bytes(wav_bytes(pcm, RATE_HZ))
            target = root / voice.id
            shutil.rmtree(target, ignore_errors=True)  # a damaged one of the same content
            os.replace(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def remove(self, voice_id: str) -> None:
        """Forget a voice and what was made of it.

        Raises:
            KeyError: There is none.
        """
        del self.voices[voice_id]
        shutil.rmtree(self._folder(voice_id), ignore_errors=True)

    def _folder(self, voice_id: str) -> Path:
        assert self._root is not None, "there is no voice without a folder"
        return self._root / voice_id

    def reference(self, voice_id: str) -> Path:
        """The recording of a clone."""
        return self._folder(voice_id) / _REFERENCE

    def made(self, voice_id: str, fingerprint: str) -> Path:
        """Where what an engine makes of a clone belongs; `fingerprint` names engine and model."""
        key = hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
        return self._folder(voice_id) / f"made-{key}.bin"


def _digest(kind: str, language: str, transcript: str, description: str, pcm: bytes) -> str:
    # What a clone is called or noted as does not change how it sounds.
    told = description if kind == "design" else transcript
    head = json.dumps([kind, language, told]).encode()
    return "voice-" + hashlib.sha256(head + b"\0" + pcm).hexdigest()[:20]


def _read(folder: Path) -> StoredVoice:
    fields: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    voice = StoredVoice(**fields)
    pcm = b""
    if voice.kind == "clone":
        wav = read_wav((folder / _REFERENCE).read_bytes())
        pcm = wav.pcm
    digest = _digest(voice.kind, voice.language, voice.transcript, voice.description, pcm)
    if not voice.id == folder.name == digest:
        raise ValueError("its content is not what its name says")
    return voice
