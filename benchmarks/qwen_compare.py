"""One text of 200 characters through rtts, qwen-tts and faster-qwen3-tts, on one machine in one run.

The same random weights (`rtts checkpoint`) for all, bfloat16, one sentence at a time, each in a process
of its own and in its own process's clock: from the call to the first samples on the host, and to the
last. Every engine makes the same number of frames and, but where it says that text arrives, has the text
in front of the audio. qwen-tts returns everything at the end, so its first
audio is its last. `--path NAME=DIR` puts a folder in front of an engine's imports, since the two others
want different versions of transformers.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import importlib.metadata
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import record

MEASURED = ("rtts/engine/qwen", "benchmarks/qwen_compare.py")
TEXT = (
    "The morning ferry leaves the harbour at seven, and on a clear day the mountains behind the city "
    "stand so close that children count the trees on them while their parents are still asking for coffee."
)
VOICE, LANGUAGE = "vivian", "English"
SAMPLES = 1920  # a frame
WORKERS = {
    "rtts": ["--engine", "rtts", "--layout", "complete"],
    "rtts, text arriving": ["--engine", "rtts", "--layout", "streaming"],
    "faster-qwen3-tts, chunk 1": ["--engine", "faster-qwen3-tts", "--chunk", "1"],
    "faster-qwen3-tts, chunk 8": ["--engine", "faster-qwen3-tts", "--chunk", "8"],
    "qwen-tts, sdpa": ["--engine", "qwen-tts", "--attention", "sdpa"],
    "qwen-tts, eager": ["--engine", "qwen-tts", "--attention", "eager"],
}
Speak = Callable[[int], Generator[int, None, None]]
"""Frames wanted to the number of samples of each chunk, as it reaches the host."""


def stand_in(name: str) -> Any:
    """An empty module of that name."""
    module: Any = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    return module


def stand_ins() -> None:
    """For what the other packages import and do not need here (`sox` prints a banner)."""
    stand_in("sox")
    try:
        importlib.import_module("torchaudio.compliance.kaldi")
    except (ImportError, OSError, AttributeError) as error:
        print(f"torchaudio is stood in for: {error}", flush=True)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        for name in ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
            stand_in(name)
    try:
        importlib.import_module("librosa.filters")
        importlib.import_module("librosa.core")
    except (ImportError, AttributeError) as error:  # its numba may not like the numpy that is there
        print(f"librosa is stood in for: {error}", flush=True)
        stand_in("librosa")
        stand_in("librosa.filters").mel = None
    try:
        importlib.import_module("onnxruntime")
    except ImportError:
        stand_in("onnxruntime")


def restore_rotary(model: Any) -> None:
    """The newest transformers leave buffers that are not saved uninitialised in classes it does not know."""
    import torch

    roots, device = (model, model.speech_tokenizer.model), next(model.parameters()).device
    for module in itertools.chain.from_iterable(root.modules() for root in roots):
        if not hasattr(module, "inv_freq") or "Qwen3TTS" not in type(module).__name__:
            continue
        config = module.config
        theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
        size = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        even = torch.arange(0, size, 2, dtype=torch.int64).float()
        module.inv_freq = (1.0 / theta ** (even / size)).to(device)
        module.original_inv_freq, module.attention_scaling = module.inv_freq, 1.0
        module._ensure_inv_freq = lambda _: None  # looks at values: not inside a captured graph


def load_reference(arguments: argparse.Namespace) -> Speak:
    """qwen-tts: whole sentences."""
    import torch

    stand_ins()
    package = importlib.import_module("qwen_tts")
    model = package.Qwen3TTSModel.from_pretrained(
        arguments.checkpoint,
        dtype=getattr(torch, arguments.dtype),
        device_map=arguments.device if arguments.device != "cpu" else None,
        attn_implementation=arguments.attention,
    )
    model.model.eval()

    def speak(frames: int) -> Generator[int, None, None]:
        waves, _ = model.generate_custom_voice(
            TEXT, VOICE, LANGUAGE, max_new_tokens=frames + 1
        )  # of which the last is dropped
        yield waves[0].shape[0]

    return speak


def load_faster(arguments: argparse.Namespace) -> Speak:
    """faster-qwen3-tts: chunks of some frames."""
    import torch

    stand_ins()
    package = importlib.import_module("faster_qwen3_tts")
    model = package.FasterQwen3TTS.from_pretrained(
        str(arguments.checkpoint),
        device=arguments.device,
        dtype=getattr(torch, arguments.dtype),
        attn_implementation="sdpa",
    )
    restore_rotary(model.model.model)
    model.warmup()

    def speak(frames: int) -> Generator[int, None, None]:
        for audio, _, _ in model.generate_custom_voice_streaming(
            TEXT, VOICE, LANGUAGE, max_new_tokens=frames, chunk_size=arguments.chunk
        ):
            yield audio.shape[0]

    return speak


def load_rtts(arguments: argparse.Namespace) -> Speak:
    """rtts: the engine core, a frame a chunk."""
    from rtts.engine import interface as waist
    from rtts.engine.qwen.engine import load_engine
    from rtts.engine.qwen.options import EndingOptions, LayoutPolicy, QwenOptions, TextOptions

    patient = EndingOptions(budget_base_frames=400, silence_frames=10**6, repeat_frames=10**6)
    layout = LayoutPolicy.AUTO if arguments.layout == "complete" else LayoutPolicy.STREAMING
    options = QwenOptions(
        model=str(arguments.checkpoint), device=arguments.device, dtype=arguments.dtype, slots=1,
        positions=2048, endings=patient, text=TextOptions(layout=layout),
    )  # fmt: skip
    engine, ids = load_engine(options), itertools.count(1)
    engine.apply(waist.LoadVoice(VOICE))
    while engine.has_work():
        engine.step(time.perf_counter())

    def speak(frames: int) -> Generator[int, None, None]:
        id_ = next(ids)
        engine.apply(waist.StartUtterance(id_, VOICE, language="en", seed=id_, until_s=1e6))
        engine.apply(waist.AppendText(id_, 0, TEXT))
        engine.apply(waist.FinishText(id_))
        made = 0
        try:
            while made < frames * SAMPLES:
                for event in engine.step(time.perf_counter()):
                    if getattr(event, "utterance_id", id_) != id_:
                        raise RuntimeError(f"of another sentence: {event}")
                    if isinstance(event, waist.AudioProduced) and event.pcm:
                        made += len(event.pcm) // 2
                        yield len(event.pcm) // 2
                    if isinstance(event, waist.UtteranceFinished | waist.UtteranceFailed):
                        print(f"ended early: {event}", flush=True)
                        return
        finally:
            engine.apply(waist.CancelUtterance(id_))
            while engine.has_work():
                engine.step(time.perf_counter())

    return speak


LOADERS = {"rtts": load_rtts, "qwen-tts": load_reference, "faster-qwen3-tts": load_faster}


def take(speak: Speak, frames: int) -> dict[str, float]:
    """One sentence."""
    begun = time.perf_counter()
    first_s, samples, first = 0.0, 0, 0
    chunks = speak(frames)
    for count in chunks:
        first_s, first = first_s or time.perf_counter() - begun, first or count
        samples += count
        last_s = time.perf_counter() - begun
        if samples >= frames * SAMPLES:
            break
    chunks.close()
    made = samples / SAMPLES
    steady = (last_s - first_s) / (made - first / SAMPLES) if samples > first else last_s / made
    return {
        "first_audio_ms": first_s * 1e3,
        "total_ms": last_s * 1e3,
        "frames": made,
        "frame_ms": last_s * 1e3 / made,
        "later_frame_ms": steady * 1e3,
        "rtf": last_s / (made * 0.08),
    }


def version_of(package: str) -> str:
    """Its version, or that it has none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def work(arguments: argparse.Namespace) -> None:
    """One engine, in this process; the result is the last line."""
    import torch

    torch.manual_seed(0)
    begun = time.perf_counter()
    speak = LOADERS[arguments.engine](arguments)
    on_gpu = arguments.device != "cpu"
    if on_gpu:
        torch.cuda.synchronize()
    load_s = time.perf_counter() - begun
    take(speak, arguments.warm_frames)
    takes = [take(speak, arguments.frames) for _ in range(arguments.runs)]
    row: dict[str, Any] = {
        key: round(statistics.median(each[key] for each in takes), 4) for key in takes[0]
    }
    row |= {"runs": len(takes), "load_s": round(load_s, 2)}
    row["total_ms_of_runs"] = [round(each["total_ms"], 1) for each in takes]
    packages = {"torch": "torch", "transformers": "transformers", "package": arguments.engine}
    for name, package in packages.items():
        if name == "torch" or arguments.engine != "rtts":
            row[name] = version_of(package)
    if on_gpu:
        free, total = torch.cuda.mem_get_info()
        row["peak_allocated_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
        row["device_in_use_gib"] = round((total - free) / 2**30, 3)
    print("RESULT " + json.dumps(row), flush=True)


def run_worker(
    name: str, arguments: argparse.Namespace, paths: dict[str, str], limit_s: float
) -> dict[str, Any]:
    """Start one engine's process and wait for its row."""
    engine = WORKERS[name][1]
    slow = engine == "qwen-tts"
    command = [sys.executable, __file__, "--checkpoint", str(arguments.checkpoint)]
    command += ["--device", arguments.device, "--dtype", arguments.dtype, *WORKERS[name]]
    command += ["--frames", str(arguments.frames), "--warm-frames", "6" if slow else "24"]
    command += ["--runs", "1" if slow else str(arguments.runs)]
    kept = [paths[engine]] if engine in paths else []
    kept += [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(kept), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {limit_s:.0f} s"}
    lines = done.stdout.splitlines()
    found = [line[7:] for line in lines if line.startswith("RESULT ")]
    if not found:
        return {"error": (done.stderr or done.stdout)[-6000:]}
    return json.loads(found[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1.7b")
    parser.add_argument("--checkpoint", type=Path, help="written if it is not there")
    parser.add_argument("--only", nargs="*", help="of the engines")
    parser.add_argument("--path", action="append", default=[], metavar="ENGINE=DIR")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--frames", type=int, default=160)
    parser.add_argument("--warm-frames", type=int, default=24)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=120.0, help="for each engine")
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--engine", choices=LOADERS, help="only this, in this process")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--chunk", type=int, default=8)
    parser.add_argument("--layout", default="complete", choices=("complete", "streaming"))
    arguments = parser.parse_args()
    if arguments.engine:
        work(arguments)
        return
    if arguments.commit:
        record.commit = lambda _: arguments.commit
    if arguments.checkpoint is None:
        arguments.checkpoint = Path(tempfile.mkdtemp()) / arguments.size
    if not (arguments.checkpoint / "config.json").exists():
        from rtts.engine.qwen.checkpoint import write_checkpoint

        write_checkpoint(arguments.checkpoint, arguments.size, "custom_voice", seed=1)
    paths = dict(each.split("=", 1) for each in arguments.path)
    results: dict[str, Any] = {
        "gpu": record.gpu(), "weights": "random", "size": arguments.size, "characters": len(TEXT), "engines": {},
    }  # fmt: skip
    for name in WORKERS:
        if arguments.only and not any(name.startswith(each) for each in arguments.only):
            continue
        row = run_worker(name, arguments, paths, arguments.limit_s)
        results["engines"][name] = row
        print(name, row, flush=True)
        if arguments.output:
            result = record.record("qwen_compare", results, measured=MEASURED, packages=["torch"])
            arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
