"""The command that makes a voice file of a recording: `python -m rtts.engine.qwen.register MODEL`.

Reads `{"reference", "made", "transcript", "language"}` on standard input. Status 0: made; 3: no voice
can be made of this recording; anything else: it did not work. The last line of standard error says why.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rtts.audio.wav import read_wav
from rtts.errors import BadRequestError, RttsError

REFUSED = 3


def main() -> int:
    """Make one."""
    from rtts.engine.qwen.clone import register_voice
    from rtts.engine.qwen.extra import torch

    torch.set_num_threads(1)  # whoever is speaking keeps the other cores
    asked = json.loads(sys.stdin.read())
    wav = read_wav(Path(asked["reference"]).read_bytes())
    samples = torch.frombuffer(bytearray(wav.pcm), dtype=torch.int16).float() / 32768
    try:
        register_voice(
            Path(sys.argv[1]), Path(asked["made"]), samples, asked["transcript"], asked["language"]
        )
    except BadRequestError as error:
        sys.stderr.write(error.message + "\n")
        return REFUSED
    except RttsError as error:
        sys.stderr.write(error.message + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
