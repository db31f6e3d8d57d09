"""Makes what an engine needs of a recording, in a process of its own: it takes seconds and all cores.

The command is the engine's; it reads one JSON object on standard input and answers with its exit
status and one line. Knows nothing about what the command does.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rtts.errors import BadRequestError, UtteranceError

# A recording of 30 s takes a few seconds on one core; past this something is wrong.
LIMIT_S = 300.0
REFUSED = 3
"""Exit status of a command that cannot make a voice of this recording, whoever asks."""


class VoiceMaker(Protocol):
    """What makes a recording into a voice of one engine.

    Attributes:
        fingerprint: Engine and model: what was made for another one is made again.
    """

    fingerprint: str

    async def make(self, reference: Path, made: Path, transcript: str, language: str) -> None:
        """Make `made` of `reference`.

        Raises:
            BadRequestError: No voice can be made of it.
            UtteranceError: It did not work.
        """


class CopyingMaker:
    """For engines that take the recording as it is."""

    fingerprint = "recording"

    async def make(self, reference: Path, made: Path, transcript: str, language: str) -> None:
        """See `VoiceMaker`."""
        del transcript, language
        await asyncio.to_thread(shutil.copyfile, reference, made)


class CommandMaker:
    """For engines that bring a command."""

    def __init__(self, command: Sequence[str], fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._command = tuple(command)
        self._turn = asyncio.Lock()  # one at a time: each takes the memory of a model

    async def make(self, reference: Path, made: Path, transcript: str, language: str) -> None:
        """See `VoiceMaker`."""
        unfinished = made.with_suffix(".part")
        asked = {
            "reference": str(reference),
            "made": str(unfinished),
            "transcript": transcript,
            "language": language,
        }
        async with self._turn:
            status, said = await self._run(json.dumps(asked).encode())
        if status == REFUSED:
            raise BadRequestError(said or "no voice can be made of this recording")
        if status:
            raise UtteranceError(f"the voice could not be made: {said or f'status {status}'}")
        os.replace(unfinished, made)

    async def _run(self, asked: bytes) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                _, said = await process.communicate(asked)
        except TimeoutError:
            return 1, f"it took longer than {LIMIT_S:g} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return process.returncode or 0, lines[-1][:500] if lines else ""
