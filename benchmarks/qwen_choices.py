"""Which attention prefills fastest, what a batch costs a sentence, and which precision to run in.

Attention: prompts of several lengths through the talker, by every implementation that runs here (torch's
scaled dot product attention has four kernels, one of them FlashAttention 2; flash-attn itself where it
is installed), and the first audio of a text of 200 characters with each. Batches: that text 1, 4 and 8
times at once. Precisions: the same in each, and errors against float32 of the same random weights.
Each precision is a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks import record
from benchmarks.qwen_compare import SAMPLES, TEXT, VOICE
from rtts.engine import interface as waist
from rtts.engine.qwen.attention import PromptAttention
from rtts.engine.qwen.engine import QwenEngine, load_engine
from rtts.engine.qwen.extra import Tensor, functional
from rtts.engine.qwen.frame import Model, SlotState
from rtts.engine.qwen.graphs import PromptRows
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.layers import attend
from rtts.engine.qwen.options import EndingOptions, QwenOptions
from rtts.engine.qwen.runner import Runner

MEASURED = ("rtts/engine/qwen", "benchmarks/qwen_choices.py")
PATIENT = EndingOptions(budget_base_frames=400, silence_frames=10**6, repeat_frames=10**6)
"""A budget that leaves room for the whole text in front of the audio."""


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """A whole prompt without a mask tensor, so that kernels that take none may run."""
    del mask
    if q.shape[1] != k.shape[1]:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def causal_grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """As `causal`, heads grouped by the kernel."""
    del mask
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def implementations() -> dict[str, tuple[Callable[..., Tensor], Any]]:
    """What can attend over a prompt: the function, and the kernel it is held to."""
    from torch.nn.attention import SDPBackend

    found: dict[str, tuple[Callable[..., Tensor], Any]] = {
        "SDPA, mask (rtts without flash-attn)": (attend, None),
        "SDPA, mask, math": (attend, SDPBackend.MATH),
        "SDPA, mask, cuDNN": (attend, SDPBackend.CUDNN_ATTENTION),
        "SDPA, causal, memory-efficient": (causal, SDPBackend.EFFICIENT_ATTENTION),
        "SDPA, causal, cuDNN": (causal_grouped, SDPBackend.CUDNN_ATTENTION),
        "SDPA, causal, FlashAttention 2": (causal_grouped, SDPBackend.FLASH_ATTENTION),
    }
    try:
        from flash_attn import flash_attn_func

        def flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            del mask
            parts = (part.transpose(1, 2) for part in (q, k, v))
            return flash_attn_func(*parts, causal=True).transpose(1, 2)

        found["flash-attn"] = (flash, None)
    except ImportError as error:
        print(f"flash-attn: {error}", flush=True)
    return found


@contextmanager
def using(model: Model, function: Callable[..., Tensor], kernel: Any) -> Iterator[None]:
    """The talker's prompts attended to by a function, held to one of torch's kernels."""
    from torch.nn.attention import sdpa_kernel

    kept = model.talker.prompt_attention
    model.talker.prompt_attention = PromptAttention(function)
    try:
        with nullcontext() if kernel is None else sdpa_kernel(kernel):
            yield
    finally:
        model.talker.prompt_attention = kept


def repeated_ms(run: Callable[[], None], count: int) -> float:
    """Median of host times that end synchronised, after two for warming up."""
    times = []
    for _ in range(count + 2):
        sync()
        begun = time.perf_counter()
        run()
        sync()
        times.append((time.perf_counter() - begun) * 1e3)
    return round(statistics.median(times[2:]), 3)


def prefilled(model: Model, x: Tensor, count: int) -> dict[str, Any]:
    """A prompt through the plain modules: time, and memory beyond its keys and values."""
    kv = KeyValues.allocate(
        model.config.talker.stack, 1, x.shape[0], model.dtype, str(model.device)
    )
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if on_gpu else 0
    row: dict[str, Any] = {"ms": repeated_ms(lambda: model.talker.prefill(x, kv, 0, 0), count)}
    if on_gpu:
        row["peak_mib"] = round((torch.cuda.max_memory_allocated() - held) / 2**20, 1)
    return row


@torch.inference_mode()
def measure_prefill(engine: QwenEngine, sizes: list[int], count: int) -> dict[str, Any]:
    """Prompts of some rows, by what attends, and the captured path."""
    runner = engine._runner
    model, positions = runner.model, runner.frames.state.kv.positions
    rows: dict[str, Any] = {}
    for size in sizes:
        ids = torch.arange(size, device=model.device) % 200 + 30
        x = model.talker.project_text(ids)
        row: dict[str, Any] = {}
        for name, (function, kernel) in implementations().items():
            try:
                with using(model, function, kernel):
                    row[name] = prefilled(model, x, count)
            except (RuntimeError, TypeError, NotImplementedError) as failure:
                row[name] = {"error": str(failure).splitlines()[0][:200]}
        if size <= positions:
            run = partial(runner.frames.prefill, [PromptRows(x, 0, 0)])
            row["captured path"] = {"ms": repeated_ms(run, count)}
        rows[str(size)] = row
        print("prefill", size, row, flush=True)
    return rows


class Speaker:
    """Speaks texts through an engine core, as fast as it can."""

    def __init__(self, engine: QwenEngine) -> None:
        self.engine, self.next = engine, 0

    def speak(self, count: int, frames: int) -> dict[str, float]:
        """The text `count` times at once: first audio of the first and the last, and all of it."""
        engine, first = self.engine, self.next + 1
        sync()
        begun = time.perf_counter()
        for _ in range(count):
            self.next += 1
            engine.apply(
                waist.StartUtterance(self.next, VOICE, language="en", seed=self.next, until_s=1e6)
            )
            engine.apply(waist.AppendText(self.next, 0, TEXT))
            engine.apply(waist.FinishText(self.next))
        made = dict.fromkeys(range(first, self.next + 1), 0.0)
        starts: dict[int, float] = {}
        open_ = set(made)
        while open_:
            for event in engine.step(time.perf_counter()):
                id_ = getattr(event, "utterance_id", 0)
                if isinstance(event, waist.AudioProduced) and event.pcm:
                    starts.setdefault(id_, time.perf_counter() - begun)
                    made[id_] += len(event.pcm) // 2 / SAMPLES
                if isinstance(event, waist.UtteranceFailed):
                    raise RuntimeError(event.message)
                ended = isinstance(event, waist.UtteranceFinished)
                if id_ in open_ and (ended or made[id_] >= frames):
                    open_.discard(id_)
                    engine.apply(waist.CancelUtterance(id_))
        total_s = time.perf_counter() - begun
        while engine.has_work():
            engine.step(time.perf_counter())
        audio_s = 0.08 * sum(made.values())
        return {
            "first_audio_ms": min(starts.values()) * 1e3,
            "last_first_audio_ms": max(starts.values()) * 1e3,
            "total_ms": total_s * 1e3,
            "ms_a_sentence": total_s * 1e3 / count,
            "frame_ms": total_s * 1e3 / max(made.values()),
            "rtf_of_each": total_s / (audio_s / count),
            "audio_s_per_s": audio_s / total_s,
        }

    def median(self, count: int, frames: int, runs: int) -> dict[str, float]:
        """Medians over some runs, after one for warming up."""
        self.speak(count, min(frames, 8))
        taken = [self.speak(count, frames) for _ in range(runs)]
        return {key: round(statistics.median(each[key] for each in taken), 3) for key in taken[0]}


def plain_prefill(runner: Runner, prompts: Sequence[PromptRows]) -> None:
    """Prompts by the plain modules, where the captured path would do it."""
    for prompt in prompts:
        kv = runner.frames.state.kv
        runner.model.talker.prefill(prompt.x, kv, prompt.slot, prompt.start)


def measure_first_audio(speaker: Speaker, runs: int) -> dict[str, Any]:
    """First audio of the text with its prompt on the captured path, and by the plain modules."""
    runner = speaker.engine._runner
    rows = {"captured path": speaker.median(1, 4, runs)["first_audio_ms"]}
    kept = runner.frames.prefill
    for name, (function, kernel) in implementations().items():
        if function is not attend:
            continue  # behind a head a prompt needs a mask or flash-attn's alignment
        try:
            with using(runner.model, function, kernel):
                runner.frames.prefill = partial(plain_prefill, runner)
                rows[name] = speaker.median(1, 4, runs)["first_audio_ms"]
        except RuntimeError as error:
            rows[name] = str(error).splitlines()[0][:200]
            while speaker.engine.has_work():
                speaker.engine.step(time.perf_counter())
        finally:
            runner.frames.prefill = kept
    return rows


def error(out: Tensor, reference: Tensor) -> float:
    wide = reference.double()
    return float((out.double() - wide).norm() / wide.norm())


@torch.inference_mode()
def measure_errors(checkpoint: Path, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """The plain modules in a precision against float32: hidden state, best code, samples."""
    found = {}
    generator = torch.Generator().manual_seed(3)
    for name, precision in (("oracle", torch.float32), ("own", dtype)):
        model = Model(checkpoint, precision, device)
        rows, talker = 4, model.config.talker
        top = model.config.codec.codebook_size
        state = SlotState.allocate(model, rows, 160)
        high = min(talker.text_vocab, 256)
        ids = (torch.arange(rows * 96).view(rows, 96) * 7 % high).to(device)
        side = model.talker.codec_embedding[: rows * 96].view(rows, 96, -1)
        hidden = []
        active = torch.ones(rows, dtype=torch.bool, device=device)
        for slot in range(rows):
            x = model.talker.project_text(ids[slot]) + side[slot]
            model.talker.prefill(x[:64], state.kv, slot, 0)
        lengths = torch.full((rows,), 64, device=device)
        for at in range(64, 96):
            x = torch.stack(
                [model.talker.project_text(ids[s, at : at + 1])[0] for s in range(rows)]
            )
            hidden.append(model.talker.step(x + side[:, at], state.kv, lengths, active, 128))
            lengths = lengths + 1
        h = torch.stack(hidden)
        scores = torch.stack([model.talker.logits(each) for each in hidden])
        if name == "oracle":
            groups = model.config.codec.quantizers
            codes = torch.randint(0, top, (rows, groups, 12), generator=generator).to(device)
        wave = model.codec.render(codes, active, model.codec.state(rows)).float()
        found[name] = (h.float().cpu(), scores.cpu(), wave.cpu(), bool(h.isfinite().all()))
        del model, state
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()
    (h, scores, wave, _), (own_h, own_scores, own_wave, finite) = found["oracle"], found["own"]
    return {
        "talker_hidden": error(own_h, h),
        "best_code_equal": float((own_scores.argmax(-1) == scores.argmax(-1)).float().mean()),
        "codec": error(own_wave, wave),
        "all_finite": finite,
        "largest_hidden": float(h.abs().max()),
    }


def work(arguments: argparse.Namespace) -> None:
    """One precision, in this process; results so far are printed after each part."""
    row: dict[str, Any] = {}

    def done(part: str, make: Callable[[], Any]) -> None:
        try:
            row[part] = make()
        except Exception as failure:  # noqa: BLE001 - what fails must not cost the other parts
            row[part] = {"error": f"{type(failure).__name__}: {failure}"[:800]}
        print("RESULT " + json.dumps(row), flush=True)

    options = QwenOptions(
        model=str(arguments.checkpoint), device=arguments.device, dtype=arguments.dtype,
        slots=8, positions=arguments.positions, endings=PATIENT,
    )  # fmt: skip
    begun = time.perf_counter()
    engine: QwenEngine | None = None
    try:
        engine = load_engine(options)
    except Exception as failure:  # noqa: BLE001 - a precision that cannot start is a result
        row["start"] = {"error": f"{type(failure).__name__}: {failure}"[:800]}
    if engine is not None:
        row["start"] = {"seconds": round(time.perf_counter() - begun, 2)}
        engine.apply(waist.LoadVoice(VOICE))
        while engine.has_work():
            engine.step(time.perf_counter())
        speaker = Speaker(engine)
        for count in (1, 4, 8):
            done(f"batch {count}", lambda n=count: speaker.median(n, arguments.frames, 3))
        if arguments.device != "cpu":
            row["peak_allocated_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
            free, total = torch.cuda.mem_get_info()
            row["device_in_use_gib"] = round((total - free) / 2**30, 3)
        if arguments.attention_rows:
            done("first_audio_ms", lambda: measure_first_audio(speaker, 10))
            done("prefill", lambda: measure_prefill(engine, arguments.attention_rows, 10))
        del speaker
    engine = None
    gc.collect()
    if arguments.dtype != "float32":
        dtype = getattr(torch, arguments.dtype)
        done("errors", lambda: measure_errors(arguments.checkpoint, arguments.device, dtype))
    print("RESULT " + json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1.7b")
    parser.add_argument("--checkpoint", type=Path, help="written if it is not there")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float16", "float32"])
    parser.add_argument("--frames", type=int, default=160)
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--attention-rows", type=int, nargs="*", default=[16, 64, 256, 1024])
    parser.add_argument("--limit-s", type=float, default=120.0, help="for each precision")
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--dtype", help="only this, in this process")
    arguments = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    if arguments.dtype:
        work(arguments)
        return
    if arguments.commit:
        record.commit = lambda _: arguments.commit
    if arguments.checkpoint is None:
        arguments.checkpoint = Path(tempfile.mkdtemp()) / arguments.size
    if not (arguments.checkpoint / "config.json").exists():
        from rtts.engine.qwen.checkpoint import write_checkpoint

        write_checkpoint(arguments.checkpoint, arguments.size, "custom_voice", seed=1)
    results: dict[str, Any] = {
        "gpu": record.gpu(), "weights": "random", "size": arguments.size, "characters": len(TEXT),
        "frames": arguments.frames, "precisions": {},
    }  # fmt: skip
    for dtype in arguments.dtypes:
        command = [sys.executable, __file__, "--dtype", dtype, "--device", arguments.device]
        command += ["--checkpoint", str(arguments.checkpoint), "--frames", str(arguments.frames)]
        command += ["--positions", str(arguments.positions), "--attention-rows"]
        if dtype == "bfloat16":
            command += [str(size) for size in arguments.attention_rows]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=arguments.limit_s, env=os.environ
            )
            out, why = done.stdout, done.stderr[-1500:]
        except subprocess.TimeoutExpired as failure:
            out = failure.stdout.decode() if isinstance(failure.stdout, bytes) else ""
            why = "out of time"
        rows = [line[7:] for line in out.splitlines() if line.startswith("RESULT ")]
        row = json.loads(rows[-1]) if rows else {"error": why}
        results["precisions"][dtype] = row
        print(dtype, json.dumps(row), flush=True)
        if arguments.output:
            result = record.record("qwen_choices", results, measured=MEASURED, packages=["torch"])
            arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
