# ruff: noqa: B023, BLE001
"""Which tile is fastest for each matrix product and attention of a frame, and whether its bits agree.

A chain of launches over different weights (more than the second-level cache holds), captured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rtts.engine.qwen.config import DecoderConfig
from rtts.engine.qwen.fused import launch as launching
from rtts.engine.qwen.fused.attention import attend
from rtts.engine.qwen.fused.linear import linear
from rtts.engine.qwen.fused.rotary import rotary_tables
from rtts.engine.qwen.fused.tiles import OVERRIDES, SPLITS, Tile

SHAPES = {  # (n, k, gated, normed)
    "talker_qkv": (4096, 2048, False, True),
    "talker_out": (2048, 2048, False, False),
    "talker_gate_up": (6144, 2048, True, True),
    "talker_down": (2048, 6144, False, False),
    "head": (3072, 2048, False, False),
    "small_qkv": (4096, 1024, False, True),
    "small_out": (1024, 2048, False, False),
    "small_gate_up": (3072, 1024, True, True),
    "small_down": (1024, 3072, False, False),
    "small_head": (2048, 1024, False, True),
    "codec_gate_up": (1024, 512, True, True),
    "codec_out": (512, 1024, False, False),
    "codec_qkv": (3072, 512, False, True),
}


def splits_for(n: int, k: int, gated: bool) -> tuple[int, ...]:
    return (1,) if gated or n > 2048 or k < 1024 else (1, 2, 4, 8)


def candidates(rows: int, n: int, k: int, gated: bool) -> list[Tile]:
    bm = min(128, max(16, 1 << (rows - 1).bit_length()))
    if bm == 16:
        space = product((16,), (16, 32, 64), (128,), (4,), (3, 5), (False, True))
    elif bm <= 64:
        space = product((bm,), (16, 32, 64), (64, 128), (4,), (3, 5), (False,))
    else:
        space = product((64, 128), (64, 128), (64, 128), (4, 8), (4,), (False,))
    tiles = []
    for bm_, bn, bk, warps, stages, prefetch in space:
        size = (bn * (2 if gated else 1) + bm_) * bk * 2 * stages
        if size > 200_000 or bk > k or (bn == 64 and warps == 2) or bm_ * bn > 128 * 128:
            continue
        if bm_ >= 64 and bn * bm_ * (2 if gated else 1) > 128 * 128 and warps == 4:
            continue
        tiles.append(Tile(bm_, bn, bk, warps, stages, prefetch))
    return tiles


def graph_us(run: Any, count: int) -> float:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(4):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return min(times[1:])


def compile_all(runs: list[Any]) -> None:
    """As `launching.compile_all`, but a tile that does not fit is left out."""
    launching._noted = noted = []
    for run in runs:
        run()
    launching._noted = None

    def one(each: Any) -> None:
        kernel, args, meta = each
        try:
            kernel.warmup(*args, grid=(1,), **meta)
        except Exception as problem:
            print("cannot compile", meta, str(problem)[:80])

    different = {launching._variant(*each): each for each in noted}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, different.values()))


def sweep_linear(rows_list: list[int], names: list[str], results: dict[str, Any]) -> None:
    jobs = []
    pool = torch.randn(120 * 2**20, device="cuda", dtype=torch.float32).to(torch.bfloat16)
    for name, rows in product(names, rows_list):
        n, k, gated, normed = SHAPES[name]
        rows_n = 2 * n if gated else n
        count = max(4, min(40, pool.numel() // (rows_n * k)))
        weights = [
            pool[i * rows_n * k : (i + 1) * rows_n * k].view(rows_n, k) for i in range(count)
        ]
        x = torch.randn(rows, k, device="cuda").to(torch.bfloat16)
        out = torch.zeros(rows, n, device="cuda", dtype=torch.bfloat16)
        squares = torch.full((rows,), k << 28, device="cuda", dtype=torch.int64)
        emit = torch.zeros(rows, device="cuda", dtype=torch.int64)
        emits = name.endswith(("out", "down"))

        def run(tile: Tile, split: int, count_: int, w=weights, x=x, out=out, sq=squares, em=emit, g=gated,
                normed=normed, emits=emits, n=n, k=k, rows=rows) -> None:  # fmt: skip
            bm = min(128, max(16, 1 << (rows - 1).bit_length()))
            OVERRIDES[("linear", n, k, g, bm)] = tile
            SPLITS[(n, k)] = split
            for each in w[:count_]:
                linear(
                    x, each, out, gated=g, eps=1e-6, squares=sq if normed else None,
                    residual=out if emits else None, emit=em if emits else None,
                )  # fmt: skip

        for tile, split in product(candidates(rows, n, k, gated), splits_for(n, k, gated)):
            if k // split % tile.bk == 0:
                jobs.append((name, rows, tile, split, run, count, x, out, rows_n * k * 2))
    compile_all([lambda job=job: job[4](job[2], job[3], 1) for job in jobs])
    found: dict[tuple[str, int], list[Any]] = {}
    reference: dict[str, Any] = {}
    for name, rows, tile, split, run, count, x, out, size in jobs:
        try:
            us = graph_us(lambda: run(tile, split, count), count)
        except Exception as problem:
            print("cannot run", name, tile, str(problem)[:80])
            continue
        if name not in reference:
            reference[name] = x[:1].clone()
        x[:1] = reference[name]
        out.zero_()
        run(tile, split, 1)
        bits = out[0].clone()
        key = f"{name} bits {split}"
        if key not in reference:
            reference[key] = bits
        found.setdefault((name, rows), []).append(
            (round(us, 2), tile, bool(torch.equal(bits, reference[key])), size, split)
        )
    for (name, rows), each in found.items():
        each.sort(key=lambda item: item[0])
        share = sum(item[2] for item in each) / len(each)
        for split in sorted({item[4] for item in each}):
            us, tile, _, size, _ = next(item for item in each if item[4] == split)
            t = (tile.bm, tile.bn, tile.bk, tile.warps, tile.stages, tile.prefetch)
            print(
                f"{name} {rows}: split {split} {us} us {size / us / 1e3:.0f} GB/s {t} agree {share:.2f}",
                flush=True,
            )
        results[f"{name} {rows}"] = [
            (us, tile.bm, tile.bn, tile.bk, tile.warps, tile.stages, tile.prefetch, same, split)
            for us, tile, same, _, split in each
        ]


def conv_candidates(m: int, n: int, c: int) -> list[Tile]:
    if m <= 16:
        space = product((16,), (16, 32, 64), (64, 128), (4,), (4, 6))
    elif m <= 128:
        space = product((16, 32, 64), (16, 32, 64), (64, 128), (4,), (4,))
    elif m <= 2048:
        space = product((32, 64, 128), (32, 64, 128), (32, 64), (4,), (4,))
    else:
        space = product((64, 128), (32, 64, 128), (32, 64), (4, 8), (3, 4))
    return [
        Tile(bm, bn, bk, warps, stages)
        for bm, bn, bk, warps, stages in space
        if c % bk == 0 and bn <= max(32, n) and (bm + bn) * bk * 2 * stages <= 200_000
        and not (bm * bn == 128 * 128 and warps == 4)
    ]  # fmt: skip


def sweep_conv(results: dict[str, Any]) -> None:
    from benchmarks.qwen_frame import load
    from rtts.engine.qwen.fused.codec import FusedCodec, _Conv

    codec = FusedCodec(load("0.6b", torch.bfloat16).codec, 256, 512)
    state = codec.state(256)
    state.flat.normal_()
    steps = {}
    for step in codec._steps:
        if isinstance(step, _Conv):
            steps.setdefault((step.columns, *step.weight.shape), step)
    jobs = []
    for (columns, n, taps, c), step in steps.items():
        for batch in (1, 4, 16, 64, 256):
            m = batch * columns
            for tile in conv_candidates(m, n, c):

                def run(step=step, batch=batch, tile=tile, key=("conv", n, c, taps, m)) -> None:
                    OVERRIDES[key] = tile
                    for _ in range(4):
                        codec._conv(step, state, batch, None, None)

                jobs.append(((n, c, taps, columns), batch, tile, run))
    compile_all([job[3] for job in jobs])
    found: dict[Any, list[Any]] = {}
    for shape, batch, tile, run in jobs:
        try:
            us = graph_us(run, 4)
        except Exception as problem:
            print("cannot run", shape, tile, str(problem)[:80])
            continue
        found.setdefault((shape, batch), []).append((us, tile))
    total: dict[int, float] = {}
    for (shape, batch), each in found.items():
        each.sort(key=lambda item: item[0])
        us, tile = each[0]
        n, c, taps, columns = shape
        flops = 2 * n * c * taps * columns * batch
        total[batch] = total.get(batch, 0.0) + us
        print(
            "conv",
            shape,
            batch,
            f"{us:.1f} us {flops / us / 1e6:.0f} TF/s",
            (tile.bm, tile.bn, tile.bk, tile.warps, tile.stages),
            f"worst {each[-1][0]:.1f}",
            flush=True,
        )
        results[f"conv {shape} {batch}"] = [
            (round(us, 2), tile.bm, tile.bn, tile.bk, tile.warps, tile.stages) for us, tile in each
        ]
    print("conv sums", total)


def sweep_attention(results: dict[str, Any]) -> None:
    stack = DecoderConfig(2048, 6144, 28, 16, 8, 128, 1e6, 1e-6)
    tables = rotary_tables(torch.rand(64, device="cuda"), 600)
    jobs = []
    for rows, held in ((1, 150), (1, 500), (16, 150), (64, 150), (256, 150)):
        layers = 8
        keys = torch.randn(layers, rows, 8, 513, 128, device="cuda").to(torch.bfloat16)
        qkv = torch.randn(rows, 4096, device="cuda").to(torch.bfloat16)
        out = torch.zeros(rows, 2048, device="cuda", dtype=torch.bfloat16)
        lengths = torch.full((rows,), held, device="cuda", dtype=torch.int64)
        on = torch.ones(rows, device="cuda", dtype=torch.int64)
        gains = torch.ones(128, device="cuda", dtype=torch.bfloat16)
        for tile in product((32, 64, 128), (1, 2, 4), (1, 2, 3)):

            def run(
                tile=tile, keys=keys, qkv=qkv, out=out, lengths=lengths, on=on, rows=rows
            ) -> None:
                for layer in keys:
                    attend(qkv, out, layer, layer, stack, tables, rows=rows, norms=(gains, gains),
                           lengths=lengths, active=on, tile=tile)  # fmt: skip

            jobs.append((rows, held, tile, run, layers))
    small = DecoderConfig(1024, 3072, 5, 16, 8, 128, 1e6, 1e-6)
    for rows in (1, 64, 256):
        keys = torch.randn(5, rows, 8, 16, 128, device="cuda").to(torch.bfloat16)
        qkv = torch.randn(rows, 4096, device="cuda").to(torch.bfloat16)
        out = torch.zeros(rows, 2048, device="cuda", dtype=torch.bfloat16)
        for tile in product((16,), (1, 2, 4), (1,)):

            def run(tile=tile, keys=keys, qkv=qkv, out=out, rows=rows) -> None:
                for layer in keys:
                    attend(qkv, out, layer, layer, small, tables, rows=rows, norms=(gains, gains),
                           first=9, tile=tile)  # fmt: skip

            jobs.append((rows, 9, tile, run, 5))
    compile_all([job[3] for job in jobs])
    found: dict[Any, list[Any]] = {}
    for rows, held, tile, run, layers in jobs:
        found.setdefault((rows, held), []).append((round(graph_us(run, layers), 2), tile))
    for key, each in found.items():
        each.sort()
        print("attend", key, each[:4], "worst", each[-1], flush=True)
        results[f"attend {key}"] = each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 32, 64, 256])
    parser.add_argument("--names", nargs="*", default=list(SHAPES))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with torch.inference_mode():
        sweep_attention(results)
        sweep_conv(results)
        sweep_linear(arguments.rows, arguments.names, results)
    if arguments.output:
        arguments.output.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
