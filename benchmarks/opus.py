"""What encoding costs: libopus by complexity, our own code around it, pages, resampling, the lock.

    python benchmarks/opus.py [--seconds 20] [--pesq] [--output benchmarks/results/...json]

Speech is the embedded CPU voice's. CPU time of the thread, the minimum and median of `--runs` runs.
The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.record import commit, machine  # noqa: E402
from rtts.audio.formats import make_encoder, resolve_format  # noqa: E402
from rtts.audio.g711 import encode_mulaw  # noqa: E402
from rtts.audio.ogg import OggOpusWriter, OpusHead  # noqa: E402
from rtts.audio.opus import Application, Encoder, Signal, load_library  # noqa: E402
from rtts.audio.pcm import to_s16  # noqa: E402
from rtts.audio.resample import Resampler  # noqa: E402

TEXTS = (
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "Six spoons of fresh snow peas, five thick slabs of blue cheese, and maybe a snack.",
    "I will be there at half past seven, unless the train is late again.",
    "Sure, I can help with that. What would you like to know first?",
)
RATE_HZ, FRAME, CHUNK = 24_000, 480, 1920  # 20 ms, and the 80 ms of one codec frame
COMPLEXITIES = (0, 5, 8, 10)


def speech(seconds: float) -> bytes:
    from hibari import Hibari

    voice, pcm = Hibari(), b""
    for seed in range(1000):
        pcm += to_s16(voice(TEXTS[seed % len(TEXTS)], seed=seed))
        if len(pcm) >= 2 * RATE_HZ * seconds:
            break
    return pcm[: len(pcm) // (2 * CHUNK) * 2 * CHUNK]


def pieces(pcm: bytes, samples: int) -> list[bytes]:
    return [pcm[at : at + 2 * samples] for at in range(0, len(pcm), 2 * samples)]


def cpu_us(work: Callable[[], int], runs: int) -> dict[str, float]:
    """CPU time of this thread for one of the things that `work` says it did."""
    figures = []
    for _ in range(runs):
        begin = time.thread_time()
        count = work()
        figures.append((time.thread_time() - begin) / count * 1e6)
    return {"min_us": round(min(figures), 2), "median_us": round(statistics.median(figures), 2)}


def tuned(complexity: int, application: int = Application.AUDIO) -> Encoder:
    encoder = Encoder(RATE_HZ, 1, application)
    encoder.bitrate, encoder.complexity, encoder.signal = 32_000, complexity, Signal.VOICE
    return encoder


def by_complexity(frames: list[bytes], runs: int) -> dict[str, Any]:
    results = {}
    for name, application in (("audio", Application.AUDIO), ("voip", Application.VOIP)):
        for complexity in COMPLEXITIES:
            encoder = tuned(complexity, application)

            def work(encoder: Encoder = encoder) -> int:
                encoder.reset_state()
                for frame in frames:
                    encoder.encode(frame, FRAME)
                return len(frames)

            results[f"{name}_complexity_{complexity}_packet"] = cpu_us(work, runs)
    return results


def our_share(chunks: list[bytes], runs: int) -> dict[str, Any]:
    """Our own time for a packet: the call into libopus replaced by one that returns at once."""
    frames = pieces(b"".join(chunks), FRAME)
    encoder = tuned(0)
    encoder._encode = lambda *_: 80

    def plain() -> int:
        for frame in frames:
            encoder.encode(frame, FRAME)
        return len(frames)

    def streamed(container: str) -> Callable[[], int]:
        stream = make_encoder(resolve_format("opus", container), RATE_HZ, serial=1)
        packer = stream._packer
        opus = packer if container == "raw" else packer._opus
        opus._encode = lambda frame, size: bytes(80)

        def work() -> int:
            for chunk in chunks:
                stream.encode(chunk)
            return len(frames)

        return work

    def ctypes_call() -> int:
        for _ in frames:
            size(1)
        return len(frames)

    size = load_library().functions.opus_encoder_get_size
    return {
        "encoder_packet": cpu_us(plain, runs),
        "stream_raw_packet": cpu_us(streamed("raw"), runs),
        "stream_ogg_packet": cpu_us(streamed("ogg"), runs),
        "ctypes_call": cpu_us(ctypes_call, runs),
    }


def creation(runs: int) -> dict[str, Any]:
    results = {}
    for codec, container, rate in (
        ("opus", "raw", 24_000),
        ("opus", "ogg", 24_000),
        ("opus", "raw", 16_000),
        ("pcm_s16le", "raw", 24_000),
        ("pcm_s16le", "raw", 8_000),
        ("mulaw", "raw", 8_000),
    ):
        fmt = resolve_format(codec, container, rate)

        def work(fmt: Any = fmt) -> int:
            for _ in range(100):
                make_encoder(fmt, RATE_HZ)
            return 100

        results[f"{codec}_{container}_{rate}"] = cpu_us(work, runs)
    return results


def framing(frames: list[bytes], runs: int) -> dict[str, Any]:
    """Ogg pages of four packets; bytes of each carrier."""
    encoder = tuned(10)
    packets = [encoder.encode(frame, FRAME) for frame in frames]
    payload = sum(map(len, packets))
    pages = b""

    def work() -> int:
        nonlocal pages
        writer = OggOpusWriter(OpusHead(1, 312, RATE_HZ), 1)
        pages = b"".join([writer.write(packet, more_follow=True) for packet in packets])
        pages += writer.finish()
        return len(packets) // 4

    return {
        "page_of_4": cpu_us(work, runs),
        "mean_packet_bytes": round(payload / len(packets), 1),
        "kbit_per_s": round(payload * 8 / len(packets) / 20, 1),
        "ogg_overhead_percent": round(100 * (len(pages) / payload - 1), 1),
    }


def other_codecs(chunks: list[bytes], runs: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for target in (8_000, 16_000, 48_000):
        resampler = Resampler(RATE_HZ, target)

        def work(resampler: Resampler = resampler) -> int:
            for chunk in chunks:
                resampler.process(chunk)
            return len(chunks)

        figures = cpu_us(work, runs)
        fresh, first_ms, worst_ms = Resampler(RATE_HZ, target), 0.0, 0.0
        for millisecond in pieces(b"".join(chunks[:20]), RATE_HZ // 1000):
            fresh.process(millisecond)
            at_ms = 1000 * fresh.samples_in / RATE_HZ
            worst_ms = max(worst_ms, at_ms - 1000 * fresh.samples_out / target)
            first_ms = first_ms or (at_ms if fresh.samples_out else 0.0)
        results[f"resample_24000_to_{target}_80ms"] = {
            **figures,
            "first_output_after_ms": round(first_ms, 1),
            "most_behind_ms": round(worst_ms, 1),
        }

    def mulaw() -> int:
        for chunk in chunks:
            encode_mulaw(chunk)
        return len(chunks)

    return {**results, "mulaw_1920_samples": cpu_us(mulaw, runs)}


def resamplers(pcm: bytes) -> dict[str, Any]:
    """Engines of libsoxr: input until the first output, and what their filters pass and stop."""
    import numpy as np
    import soxr

    samples = np.frombuffer(pcm[: 2 * RATE_HZ], "<i2").astype(np.float32)

    def level_db(stream: Any, target: int, frequency: float) -> float:
        wave = np.sin(2 * np.pi * frequency * np.arange(RATE_HZ) / RATE_HZ).astype(np.float32)
        middle = stream.resample_chunk(wave, last=True)[target // 4 : -target // 4]
        return round(float(20 * np.log10(np.sqrt(2 * np.mean(np.square(middle))) + 1e-9)), 1)

    results: dict[str, Any] = {}
    for target in (8_000, 16_000, 48_000):
        for quality in ("QQ", "LQ", "MQ", "HQ", "VHQ", "variable_rate"):
            engine = {"quality": "HQ", "vr": True}
            if quality != "variable_rate":
                engine = {"quality": quality}

            def make(target: int = target, engine: dict[str, Any] = engine) -> Any:
                return soxr.ResampleStream(RATE_HZ, target, 1, dtype="float32", **engine)

            stream, taken, step = make(), 0, RATE_HZ // 1000
            while not len(stream.resample_chunk(samples[taken : taken + step])):
                taken += step
            nyquist = min(RATE_HZ, target) / 2
            results[f"24000_to_{target}_{quality}"] = {
                "first_output_after_ms": (taken + step) * 1000 / RATE_HZ,
                "db_at_0.8_nyquist": level_db(make(), target, 0.8 * nyquist),
                "db_at_0.9_nyquist": level_db(make(), target, 0.9 * nyquist),
                **(
                    {"db_at_1.1_nyquist": level_db(make(), target, 1.1 * nyquist)}
                    if target < RATE_HZ
                    else {}
                ),
            }
    return results


def quality(seconds: float) -> dict[str, Any]:
    """PESQ (wide band) of each setting against the voice, sentence by sentence."""
    import numpy as np
    from pesq import pesq  # pip install pesq (needs a C compiler)

    from rtts.audio.opus import Decoder

    def at_16_khz(pcm: bytes) -> Any:
        resampler = Resampler(RATE_HZ, 16_000)
        return np.frombuffer(resampler.process(pcm) + resampler.flush(), "<i2")

    pcm = speech(seconds)
    sentences = [part for part in pieces(pcm, 4 * RATE_HZ) if len(part) == 8 * RATE_HZ]
    results: dict[str, Any] = {"sentences_of_4_s": len(sentences)}
    for bitrate in (24_000, 32_000, 48_000):
        for name, application, signal, complexity in (
            ("voip_voice_10", Application.VOIP, Signal.VOICE, 10),
            ("audio_voice_10", Application.AUDIO, Signal.VOICE, 10),
            ("audio_voice_5", Application.AUDIO, Signal.VOICE, 5),
            ("audio_voice_0", Application.AUDIO, Signal.VOICE, 0),
            ("audio_auto_5", Application.AUDIO, Signal.AUTO, 5),
            ("lowdelay_voice_10", Application.RESTRICTED_LOWDELAY, Signal.VOICE, 10),
        ):
            scores = []
            for part in sentences:
                encoder, decoder = tuned(complexity, application), Decoder(RATE_HZ, 1)
                encoder.bitrate, encoder.signal = bitrate, signal
                heard = b"".join(
                    decoder.decode(encoder.encode(frame, FRAME)) for frame in pieces(part, FRAME)
                )[2 * encoder.lookahead :]
                said = at_16_khz(part[: len(heard)])
                scores.append(pesq(16_000, said, at_16_khz(heard), "wb"))
            results[f"{bitrate}_{name}"] = round(statistics.mean(scores), 2)
    return results


def interpreter_lock(frames: list[bytes]) -> dict[str, Any]:
    """Wall time of four packets beside a thread that runs Python, the lock kept or released.

    The two threads are kept on different cores where that can be said: on one and the same, the
    neighbour is rarely scheduled in time to take the lock, and the harm does not show.
    """
    results = {}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def move_to(core: int) -> None:
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[core]})  # of the calling thread

    path = load_library().path
    for name, loader in (("lock_kept", ctypes.PyDLL), ("lock_released", ctypes.CDLL)):
        function = loader(path).opus_encode
        function.restype = ctypes.c_int32
        function.argtypes = load_library().functions.opus_encode.argtypes
        for neighbour in (False, True):
            encoder = tuned(10)
            encoder._encode = function
            stop = threading.Event()

            def spin(stop: threading.Event = stop) -> None:
                move_to(1)
                while not stop.is_set():
                    sum(range(200))

            thread = threading.Thread(target=spin)
            if neighbour:
                thread.start()
            move_to(0)
            walls = []
            for at in range(0, 4 * 100, 4):
                time.sleep(0.01)
                begin = time.perf_counter()
                for frame in frames[at : at + 4]:
                    encoder.encode(frame, FRAME)
                walls.append(1000 * (time.perf_counter() - begin))
            stop.set()
            if neighbour:
                thread.join()
            walls.sort()
            results[f"{name}_{'beside_python' if neighbour else 'alone'}"] = {
                "p50_ms": round(walls[len(walls) // 2], 2),
                "p95_ms": round(walls[len(walls) * 95 // 100], 2),
            }
    if cores:
        os.sched_setaffinity(0, cores)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of speech")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--pesq", action="store_true", help="also quality; needs package pesq")
    parser.add_argument("--output", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    pcm = speech(arguments.seconds)
    chunks, frames = pieces(pcm, CHUNK), pieces(pcm, FRAME)
    library = load_library()
    result: dict[str, Any] = {
        "benchmark": "opus",
        "command": "python " + " ".join(["benchmarks/opus.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(("rtts/audio", "benchmarks/opus.py")),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "libopus": f"{library.version} ({library.source})",
            **{
                name: importlib.metadata.version(name)
                for name in ("opuslib-next-bundled", "numpy", "soxr", "hibari-tts")
            },
        },
        "results": {
            "speech_s": len(pcm) / 2 / RATE_HZ,
            "encode_20ms_24khz_32kbit": by_complexity(frames, arguments.runs),
            "our_share": our_share(chunks, arguments.runs),
            "make_encoder": creation(arguments.runs),
            "ogg": framing(frames, arguments.runs),
            "other_codecs": other_codecs(chunks, arguments.runs),
            "resamplers": resamplers(pcm),
            "four_packets_wall": interpreter_lock(frames),
        },
    }
    if arguments.pesq:
        result["results"]["pesq_wb"] = quality(arguments.seconds)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
