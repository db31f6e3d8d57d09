"""How long one codec frame takes on a GPU: talker, code predictor, sampling, codec, by batch size.

Random weights of the released shapes, drawn on the device: times are right, what is spoken is noise.
Every time is one replay of one captured graph between two device events, after a warm-up.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import record
from rtts.engine.qwen.checkpoint import RandomWeights, write_settings
from rtts.engine.qwen.extra import Tensor
from rtts.engine.qwen.frame import Model, SlotState, speak_frame
from rtts.engine.qwen.fused import tiles
from rtts.engine.qwen.fused.launch import set_dependent_launch
from rtts.engine.qwen.graphs import GraphFrames, buckets_for
from rtts.engine.qwen.sampling import Sampler

MEASURED = ("rtts/engine/qwen", "benchmarks/qwen_frame.py")
MUST_MS = {1: 5.0, 16: 7.0, 64: 10.0, 256: 22.0}
AIM_MS = {1: 2.5, 16: 3.5, 64: 5.0, 256: 12.0}


class Rounded(RandomWeights):
    """Values rounded to bfloat16 whatever they are held in: the float32 oracle of a bfloat16 model."""

    def take(self, name: str, *shape: int) -> Tensor:
        return super().take(name, *shape).to(torch.bfloat16).to(self.dtype)


def load(size: str, dtype: torch.dtype, rounded: bool = False) -> Model:
    folder = Path(tempfile.mkdtemp()) / size
    write_settings(folder, size, "custom_voice")
    kind = Rounded if rounded else RandomWeights
    return Model(folder, dtype, "cuda", read=lambda _, dtype_, device: kind(dtype_, device))


def fill(frames: GraphFrames, held: int, seeds: list[int]) -> None:
    """Every slot as if `held` positions were spoken; keys and values are noise of the right size."""
    state = frames.state
    generator = torch.Generator("cuda").manual_seed(1)
    for part in (state.kv.k, state.kv.v):
        for layer in part:
            noise = torch.randn(
                1, *layer.shape[1:], generator=generator, device="cuda", dtype=torch.float32
            )
            layer.copy_(noise)
    side = torch.randn(state.codec_side.shape[1], generator=generator, device="cuda")
    state.codec_side.copy_(side)
    state.lengths.fill_(held)
    state.seeds.copy_(torch.tensor(seeds))
    for counter in (state.frames, state.drawn):
        counter.zero_()
    state.seen.zero_()
    for slot in range(state.lengths.shape[0]):
        frames.begin_codec(slot, None)


def timed(run: Callable[[], None], count: int) -> list[float]:
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def figures(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median_ms": round(statistics.median(ordered), 4),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 4),
        "count": len(ordered),
    }


def captured(run: Callable[[], None]) -> torch.cuda.CUDAGraph:
    with torch.inference_mode():
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    return graph


def measure(frames: GraphFrames, buckets: list[int], held: int, count: int, parts: bool) -> Any:
    results: dict[str, Any] = {}
    slots = frames.state.lengths.shape[0]
    for bucket in buckets:
        fill(frames, held, list(range(slots)))
        texts, active = [300 + n for n in range(bucket)], [1] * bucket
        row: dict[str, Any] = {}
        row["frame"] = figures(timed(partial(frames.start, texts, active, 0), count))
        host = []
        for _ in range(count):
            begun = time.perf_counter()
            frames.start(texts, active, 0)
            frames.collect()
            host.append((time.perf_counter() - begun) * 1e3)
        row["frame_host"] = figures(host)
        if parts:
            fused = frames.fused
            for name, part in (
                ("talker", fused.talk), ("predictor", fused.predict), ("codec", fused.render)
            ):  # fmt: skip
                graph = captured(partial(part, bucket))
                row[name] = figures(timed(graph.replay, count))
                del graph
        results[str(bucket)] = row
        show = {key: value["median_ms"] for key, value in row.items()}
        must, aim = MUST_MS.get(bucket), AIM_MS.get(bucket)
        print(
            f"B={bucket:3d} {show} p95 {row['frame']['p95_ms']} must {must} aim {aim}", flush=True
        )
    return results


def measure_plain(model: Model, buckets: list[int], held: int, count: int) -> Any:
    """The plain modules, captured: what fusing is compared with."""
    results = {}
    for bucket in buckets:
        state = SlotState.allocate(model, bucket, 512)
        state.lengths.fill_(held)
        codec_state = model.codec.state(bucket)
        sampler = Sampler(model.config.sampling, model.config.talker, model.device)
        side = torch.randn_like(state.codec_side)
        active = torch.ones(bucket, dtype=torch.bool, device="cuda")
        graph = captured(
            partial(speak_frame, model, sampler, state, codec_state, side, active, 256)
        )
        results[str(bucket)] = figures(timed(graph.replay, count))
        print(f"plain B={bucket}: {results[str(bucket)]}", flush=True)
        del graph
    return results


def profiled(frames: GraphFrames, bucket: int, held: int) -> list[dict[str, Any]]:
    """Device time of one frame's kernels, by name and grid, the most expensive first."""
    import json

    from torch.profiler import ProfilerActivity, profile

    fill(frames, held, list(range(frames.state.lengths.shape[0])))
    texts, active = [300] * bucket, [1] * bucket
    for _ in range(3):
        frames.start(texts, active, 0)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        frames.start(texts, active, 0)
        torch.cuda.synchronize()
    file = Path(tempfile.mkdtemp()) / "trace.json"
    profiler.export_chrome_trace(str(file))
    sums: dict[str, list[float]] = {}
    for event in json.loads(file.read_text())["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            name = f"{event['name'][:40]} {event.get('args', {}).get('grid', '')}"
            sums.setdefault(name, []).append(event["dur"])
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1]))
    return [
        {"kernel": name, "count": len(times), "total_us": round(sum(times), 1),
         "mean_us": round(sum(times) / len(times), 2)}
        for name, times in ordered
    ]  # fmt: skip


def error(out: Tensor, reference: Tensor) -> float:
    wide = reference.double()
    return float((out.double() - wide).norm() / wide.norm())


@torch.inference_mode()
def check(size: str, model: Model, frames: GraphFrames) -> Any:
    """Fused bfloat16 and plain bfloat16 against plain float32 of the same (rounded) weights."""
    oracle = load(size, torch.float32, rounded=True)
    rows, prompt = 4, 24
    fused = frames.fused
    ids = torch.arange(1000, 1000 + prompt, device="cuda")
    text = torch.arange(50, 50 + rows, device="cuda")
    hidden, plain_states = {}, {}
    for name, each in (("oracle", oracle), ("plain", model)):
        state = SlotState.allocate(each, rows, 128)
        for slot in range(rows):
            x = each.talker.project_text(ids[: prompt - slot])
            each.talker.prefill(x, state.kv, slot, 0)
            state.begin_take(slot, prompt - slot, each.talker.codec_embedding[2149])
        active = torch.ones(rows, dtype=torch.bool, device="cuda")
        x = state.codec_side + each.talker.project_text(text)
        hidden[name] = each.talker.step(x, state.kv, state.lengths, active, 128)
        plain_states[name] = state
    fill(frames, 0, [7] * frames.state.lengths.shape[0])
    state = frames.state
    for slot in range(rows):
        state.kv.k[:, slot, :, :prompt] = plain_states["plain"].kv.k[:, slot, :, :prompt]
        state.kv.v[:, slot, :, :prompt] = plain_states["plain"].kv.v[:, slot, :, :prompt]
        state.begin_take(slot, prompt - slot, model.talker.codec_embedding[2149])
    fused.inputs[:rows, 0], fused.inputs[:rows, 1] = text, 1
    fused.talk(rows)
    fused.predict(rows)
    out: dict[str, Any] = {
        "talker_hidden": {
            "fused": error(fused._h[:rows], hidden["oracle"]),
            "plain": error(hidden["plain"], hidden["oracle"]),
        }
    }
    # the predictor, group by group along the fused codes, against the oracle's scores
    embedded = torch.nn.functional.embedding(fused.codes[:rows, 0], oracle.talker.codec_embedding)
    agree = []

    def forced(scores: Tensor, group: int) -> Tensor:
        wanted = fused.codes[:rows, group]
        agree.append((scores.topk(50).indices == wanted[:, None]).any(1).float().mean().item())
        return wanted

    oracle.predictor.predict(hidden["oracle"], embedded, forced)
    out["predictor_codes_in_oracle_top50"] = sum(agree) / len(agree)
    codes = torch.randint(0, 2048, (rows, 16, 8), device="cuda")
    on = torch.ones(rows, dtype=torch.bool, device="cuda")
    wave = {
        name: each.codec.render(codes, on, each.codec.state(rows)).float()
        for name, each in (("oracle", oracle), ("plain", model))
    }
    codec, codec_state = frames._codec, frames._codec.state(rows)
    flags = torch.full((rows,), 4, dtype=torch.int32, device="cuda")
    heard = []
    for t in range(codes.shape[2]):
        codec.render(codes[:, :, t].contiguous(), flags, codec_state, rows)
        codec_state.frames.add_(1)
        heard.append(codec.pcm[:rows].float() / 32767.0)
    out["codec"] = {
        "fused": error(torch.cat(heard, 1), wave["oracle"]),
        "plain": error(wave["plain"], wave["oracle"]),
        "rms": float(wave["oracle"].square().mean().sqrt()),
    }
    del oracle
    torch.cuda.empty_cache()
    return out


def bits(frames: GraphFrames, count: int) -> Any:
    """The same request in slot 0 of every batch size, and in the middle of the largest."""
    slots = frames.state.lengths.shape[0]
    said: dict[str, list[Any]] = {}
    for bucket in [b for b in buckets_for(slots) if b <= slots]:
        seeds = [100 + n for n in range(slots)]
        seeds[bucket // 2] = seeds[0]
        fill(frames, 20, seeds)
        frames.state.lengths[1:] += torch.arange(slots - 1, device="cuda") % 37  # others differ
        frames.state.lengths[bucket // 2] = 20
        codes, middle, pcm = [], [], []
        for n in range(count):
            texts = [300 + n + slot for slot in range(bucket)]
            texts[bucket // 2] = texts[0]
            frames.start(texts, [1] * bucket, 0)
            heard = frames.collect()
            codes.append(tuple(heard.codes[0]))
            middle.append(tuple(heard.codes[bucket // 2]))
            pcm.append(heard.pcm[0].tobytes())
        said[str(bucket)] = [codes, middle, pcm]
    first = said["1"]
    return {
        bucket: {
            "codes_equal": codes == first[0],
            "other_slot_equal": middle == first[0],
            "first_difference": next(
                (n for n, (a, b) in enumerate(zip(codes, first[0], strict=True)) if a != b), None
            ),
            "pcm_equal": pcm == first[2],
        }
        for bucket, (codes, middle, pcm) in said.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1.7b")
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--buckets", type=int, nargs="*", default=[1, 4, 16, 32, 64, 128, 256])
    parser.add_argument("--held", type=int, default=150, help="talker positions held")
    parser.add_argument("--positions", type=int, default=512, help="talker positions of a slot")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--plain", type=int, nargs="*", default=[])
    parser.add_argument("--profile", type=int, nargs="*", default=[])
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--no-parts", action="store_true")
    parser.add_argument("--pdl", type=int, help="programmatic dependent launch: 0, 1 or 2")
    parser.add_argument("--spread-rows", type=int, default=tiles.SPREAD_ROWS)
    parser.add_argument("--choose-warps", type=int, default=tiles.CHOOSE_WARPS)
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    if arguments.pdl is not None:
        set_dependent_launch(arguments.pdl)
    tiles.SPREAD_ROWS = arguments.spread_rows
    tiles.CHOOSE_WARPS = arguments.choose_warps
    if arguments.commit:
        record.commit = lambda _: arguments.commit
    torch.backends.cudnn.allow_tf32 = False
    results: dict[str, Any] = {"weights": "random", "size": arguments.size, "held": arguments.held}
    begun = time.perf_counter()
    with torch.inference_mode():
        model = load(arguments.size, torch.bfloat16)
        torch.cuda.synchronize()
        print(f"weights {time.perf_counter() - begun:.1f} s", flush=True)
        if arguments.plain:
            results["plain_captured"] = measure_plain(
                model, arguments.plain, arguments.held, arguments.count
            )
        begun = time.perf_counter()
        frames = GraphFrames(model, model.config.sampling, arguments.slots, arguments.positions)
        frames.prepare()
        results["prepare_s"] = round(time.perf_counter() - begun, 2)
        print(f"prepare {results['prepare_s']} s, {frames.captures} graphs", flush=True)
        results["frames"] = measure(
            frames, arguments.buckets, arguments.held, arguments.count, not arguments.no_parts
        )
        results["memory"] = {
            "allocated_gib": round(torch.cuda.memory_allocated() / 2**30, 2),
            "reserved_gib": round(torch.cuda.memory_reserved() / 2**30, 2),
            "codec_state_bytes_a_slot": frames._codec_state.nbytes // arguments.slots,
        }
        results["profile"] = {
            str(bucket): profiled(frames, bucket, arguments.held) for bucket in arguments.profile
        }
        for bucket, rows in results["profile"].items():
            print(f"profile B={bucket}: {sum(row['total_us'] for row in rows):.0f} us in kernels")
            for row in rows[:16]:
                print("   ", *row.values())
        if not arguments.no_check:
            results["bits"] = bits(frames, 40)
            print(results["bits"], flush=True)
            results["errors"] = check(arguments.size, model, frames)
            print(results["errors"], flush=True)
    results["gpu"] = torch.cuda.get_device_name()
    result = record.record(
        "qwen_frame", results, measured=MEASURED, packages=["torch", "triton", "numpy"]
    )
    if arguments.output:
        import json

        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
