"""What `rtts doctor` looks at for Qwen3-TTS: torch, the GPU as torch sees it, the model folder, memory.

torch is asked in a process of its own: it takes seconds and much memory to import, and one that is
broken can end the process that imports it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rtts.cli.looking import Check, version_of
from rtts.errors import ConfigError

if TYPE_CHECKING:
    from rtts.engine.qwen.config import ModelConfig
    from rtts.engine.qwen.sizing import DeviceMemory
    from rtts.settings import Settings

_PROBE_TIMEOUT_S = 120.0  # a cold disk reads torch's two gigabytes
_PROBE = """
import importlib.util, json, torch
usable = torch.cuda.is_available()
count = torch.cuda.device_count() if usable else 0
print(json.dumps({
    "cuda": torch.version.cuda or "",
    "triton": importlib.util.find_spec("triton") is not None,
    "names": [torch.cuda.get_device_name(n) for n in range(count)],
    "memory": [torch.cuda.mem_get_info(n) for n in range(count)],
    "sum": float(torch.ones(3, device="cuda").sum()) if usable else 3.0,
}))
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """What torch says of this machine.

    Attributes:
        cuda: The CUDA it was built for, or "".
        memory: Free and total bytes of each GPU.
        trouble: Why it says nothing; "" where it does.
    """

    cuda: str = ""
    triton: bool = False
    names: tuple[str, ...] = ()
    memory: tuple[tuple[int, int], ...] = ()
    trouble: str = ""


def probe_torch() -> Probe:
    """Import torch in a process of its own and have it add up three numbers on the GPU."""
    try:
        run = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(trouble=f"torch does not answer: {error}")
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        return Probe(trouble=lines[-1])
    said = json.loads(run.stdout.strip().splitlines()[-1])
    if said["sum"] != 3.0:
        return Probe(trouble=f"three ones on the GPU are {said['sum']}")
    memory = tuple((free, total) for free, total in said["memory"])
    return Probe(said["cuda"], said["triton"], tuple(said["names"]), memory)


def qwen_checks(settings: Settings, *, has_gpu: bool) -> Iterator[Check]:
    """Whether Qwen3-TTS can run here, on what, and how much of it."""
    from rtts.engine.qwen.factory import HOW_TO_INSTALL, missing_packages

    version = version_of("torch")
    is_asked = settings.engine.kind == "qwen" or bool(settings.qwen.model) or has_gpu
    probe = probe_torch() if version and is_asked else Probe()
    if not version:
        yield Check("torch", "missing", "not installed; for qwen only")
    elif is_asked:
        yield _torch(version, probe, has_gpu=has_gpu)
    else:
        yield Check("torch", "ok", version)
    flash = version_of("flash-attn")
    how = "voice heads use torch's own (SDPA)"
    if flash:  # whether it loads beside this torch is found out by the engine
        how = "prefills voice heads on a GPU if it loads there: /readyz says what is used"
    yield Check("flash-attn", "ok" if flash else "missing", f"{flash or 'not installed'}; {how}")
    missing = missing_packages()
    if missing:
        yield Check("qwen engine", "missing", f"needs {', '.join(missing)}", HOW_TO_INSTALL)
        return
    yield from _model(settings, probe)


def _torch(version: str, probe: Probe, *, has_gpu: bool) -> Check:
    if probe.trouble:
        return Check("torch", "problem", f"{version}: {probe.trouble}", "install it again")
    if not probe.names:
        found = f"{version}, " + (f"CUDA {probe.cuda}, sees no GPU" if probe.cuda else "for CPUs")
        remedy = "" if not has_gpu else "there is a GPU: install the torch for its driver's CUDA"
        return Check("torch", "missing" if has_gpu else "ok", found, remedy)
    found = f"{version}, CUDA {probe.cuda}, computes on {', '.join(probe.names)}"
    if not probe.triton:
        return Check("torch", "problem", f"{found}; no Triton", "pip install triton")
    return Check("torch", "ok", f"{found}, Triton {version_of('triton')}")


def _model(settings: Settings, probe: Probe) -> Iterator[Check]:
    from rtts.engine.qwen.factory import check_tensors, find_checkpoint

    can_use_gpu = bool(probe.names) and probe.triton
    device = "a GPU (--device cuda)" if can_use_gpu else "the CPU only, slower than real time"
    if not settings.qwen.model:
        remedy = "--model DIR_OR_NAME; `rtts checkpoint` writes one of random weights"
        yield Check("qwen engine", "ok", f"can run on {device}; no model is named", remedy)
        return
    try:
        folder, config = find_checkpoint(settings.qwen)
        size = check_tensors(folder)
    except ConfigError as error:
        yield Check("qwen engine", "problem", error.message)
        return
    found = f"can run on {device}; {config.model_type} checkpoint {folder}, {size / 1e9:.1f} GB"
    yield Check("qwen engine", "ok", found)
    yield from _memory(settings, config, probe, size)


def _memory(
    settings: Settings, config: ModelConfig, probe: Probe, size_bytes: int
) -> Iterator[Check]:
    """Whether it fits where it is to run, and where else it would."""
    from rtts.engine.qwen.sizing import DeviceMemory

    wanted = settings.qwen.devices if settings.qwen.device != "cpu" else ()
    for number, (free, total) in enumerate(probe.memory):
        names = (f"cuda:{number}", "cuda") if number == 0 else (f"cuda:{number}",)
        is_wanted = any(name in wanted for name in names)
        yield _gpu_memory(settings, config, names[0], DeviceMemory(free, total), is_wanted)
    for device in wanted:
        if int(device.partition(":")[2] or 0) >= len(probe.memory):
            found = f"torch sees {len(probe.memory)} GPUs"
            yield Check(f"  {device}", "problem", found, "--device cpu, or one that is there")
    if not wanted:
        yield _cpu_memory(settings, size_bytes)


def _gpu_memory(
    settings: Settings,
    config: ModelConfig,
    name: str,
    memory: DeviceMemory,
    is_wanted: bool,
) -> Check:
    from rtts.engine.qwen.sizing import size_gpu

    options = dataclasses.replace(settings.qwen, device=name)
    if not is_wanted:
        options = dataclasses.replace(options, slots="auto")
    value_bytes = 4 if options.dtype == "float32" else 2
    try:
        sizing = size_gpu(options, config, value_bytes, memory)
    except ConfigError as error:
        return Check(f"  {name} memory", "problem" if is_wanted else "missing", error.message)
    return Check(f"  {name} memory", "ok", str(sizing))


def _cpu_memory(settings: Settings, size_bytes: int) -> Check:
    """Weights in the main memory; bfloat16 files become float32 there unless told otherwise."""
    name = "  memory"
    is_wide = settings.qwen.dtype in ("auto", "float32")
    needed = size_bytes * (2 if is_wide else 1) * settings.engine.workers
    free = _available_bytes()
    found = f"about {needed / 1e9:.1f} GB for weights on the CPU"
    if free is None:
        return Check(name, "ok", found)
    found += f", {free / 1e9:.1f} GB available"
    if needed > free:
        return Check(name, "problem", found, "a smaller checkpoint, or qwen.dtype = bfloat16")
    return Check(name, "ok", found)


def _available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
