"""How much speech `rtts batch` makes an hour: by engine, format, texts at once and engine processes.

    python benchmarks/batch.py                 150 texts of one to four sentences
    python benchmarks/batch.py --texts 40 -o benchmarks/results/batch-NAME.json

Every case runs the command itself, in a process of its own, into an empty folder. Speech a second of
wall time does not count what loads before the first text.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import record

_SENTENCES = (
    "The ferry leaves at a quarter past seven, and it does not wait for anybody.",
    "Please put the blue folder back where you found it.",
    "Nobody had expected that the bridge would be closed for so long.",
    "It rained.",
    "When the lights went out, we simply went on talking in the dark until somebody laughed.",
)
CASES: dict[str, tuple[str, ...]] = {
    "loopback, no engine to speak of, wav": ("--engine", "tone", "--format", "wav"),
    "the same, opus": ("--engine", "tone", "--format", "opus"),
    "embedded voice, 1 process, wav": ("--engine", "cpu", "--format", "wav"),
    "embedded voice, 2 processes, wav": ("--engine", "cpu", "--format", "wav", "--workers", "2"),
    "embedded voice, 1 process, opus": ("--engine", "cpu", "--format", "opus"),
    "embedded voice, 2 processes, opus": ("--engine", "cpu", "--format", "opus", "--workers", "2"),
}


def write_texts(path: Path, count: int) -> None:
    """The same texts every time."""
    draw = random.Random(1)
    with path.open("w") as file:
        for _ in range(count):
            text = " ".join(draw.choices(_SENTENCES, k=draw.randint(1, 4)))
            file.write(json.dumps({"text": text}) + "\n")


def measure(texts: Path, flags: tuple[str, ...]) -> dict[str, Any]:
    """Run one case."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        argv = [sys.executable, "-m", "rtts", "batch", str(texts), "-o", folder, *flags]
        run = subprocess.run(argv, capture_output=True, text=True, check=True)
        wall_s = time.monotonic() - began_s
    found = re.search(r"(\d+) spoken.* ([\d.]+) s of speech in ([\d.]+) s", run.stderr)
    assert found, run.stderr
    audio_s, speaking_s = float(found[2]), float(found[3])
    return {
        "texts": int(found[1]),
        "audio_s": audio_s,
        "speaking_s": speaking_s,
        "whole_command_s": round(wall_s, 2),
        "speech_per_wall_s": round(audio_s / max(speaking_s, 0.1), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=150)
    parser.add_argument(
        "--runs", type=int, default=2, help="the best counts: others use the machine"
    )
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.jsonl"
        write_texts(texts, arguments.texts)
        results = {}
        for name, flags in CASES.items():
            runs = [measure(texts, flags) for _ in range(arguments.runs)]
            results[name] = max(runs, key=lambda one: one["speech_per_wall_s"])
            print(f"{name}: {results[name]}", flush=True)
    if arguments.output:
        result = record("batch", results, measured=["rtts", "clients"], packages=["onnxruntime"])
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
