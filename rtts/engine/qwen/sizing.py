"""How many slots a device gets, and what its memory goes to: for the start, reports and `rtts doctor`.

Decides from numbers; who asks the device for them is somebody else's business, so it knows no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.engine.qwen.config import ModelConfig
from rtts.engine.qwen.memory import CONTEXT_BYTES, MemoryPlan, plan_memory, usable_bytes
from rtts.engine.qwen.options import QwenOptions
from rtts.errors import ConfigError

MEMORY_LIMIT = 0.9
"""Share of device memory past which new utterances are refused; slots stay below it."""

CPU_SLOTS = 8
"""`auto` on a CPU: time is short there long before memory is, and more slots make none of them
faster. Eight batch what batches and leave a listener of a small model its pace."""

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A GPU's memory as it is now, CUDA's context being paid for."""

    free_bytes: int
    total_bytes: int

    @classmethod
    def untouched(cls, free_bytes: int, total_bytes: int) -> DeviceMemory:
        """As a driver's tool shows it, before there is a context."""
        return cls(max(0, free_bytes - CONTEXT_BYTES), total_bytes)


@dataclass(frozen=True, slots=True)
class Sizing:
    """What an engine on a GPU takes.

    Attributes:
        slots: How many it gets, at least 1.
        most: How many would fit.
        usable_bytes: What it may take.
    """

    slots: int
    most: int
    plan: MemoryPlan
    positions: int
    usable_bytes: int

    @property
    def memory(self) -> tuple[tuple[str, int], ...]:
        """Bytes by what they are for, as in `Capabilities.memory`."""
        plan = self.plan
        return (
            ("weights", plan.weights_bytes),
            ("slots", self.slots * plan.slot_bytes(self.positions)),
            ("graphs", plan.graphs_bytes(self.slots)),
            ("heads_and_scratch", plan.fixed_bytes),
            ("usable", self.usable_bytes),
        )

    def __str__(self) -> str:
        """One sentence for people."""
        plan = self.plan
        return (
            f"{self.slots} slots of {plan.slot_bytes(self.positions) / 2**20:.0f} MiB, "
            f"weights {gib(plan.weights_bytes)}, graphs {gib(plan.graphs_bytes(self.slots))}, "
            f"heads and scratch {gib(plan.fixed_bytes)}: {gib(self._total_bytes)} "
            f"of {gib(self.usable_bytes)} usable, which would hold {self.most} slots"
        )

    @property
    def _total_bytes(self) -> int:
        return self.plan.total_bytes(self.slots, self.positions)


def size_gpu(
    options: QwenOptions, config: ModelConfig, value_bytes: int, device: DeviceMemory
) -> Sizing:
    """The slots that the options ask for, or with `auto` as many as fit.

    Args:
        value_bytes: Of a weight: 2 or 4.
        device: Before anything of the checkpoint is loaded.

    Raises:
        ConfigError: They do not fit; the message says what would.
    """
    plan = plan_memory(config, value_bytes=value_bytes, prefix_bytes=options.prefix_bytes)
    usable = usable_bytes(device.free_bytes, device.total_bytes, MEMORY_LIMIT)
    most = plan.slots_for(usable, options.positions)
    if most == 0:
        needed = plan.total_bytes(1, options.positions)
        raise ConfigError(
            f"qwen.device: {options.device} has {gib(usable)} to use of {gib(device.total_bytes)}, "
            f"and this checkpoint needs {gib(needed)} for one slot{_smaller(plan, options, usable)}"
        )
    if options.slots != "auto" and plan.total_bytes(options.slots, options.positions) > usable:
        raise ConfigError(
            f"qwen.slots: {options.slots} do not fit into the {gib(usable)} that "
            f"{options.device} has to use of {gib(device.total_bytes)}; works with {most} slots "
            "(--slots auto), or more with fewer qwen.positions"
        )
    slots = most if options.slots == "auto" else options.slots
    return Sizing(slots, most, plan, options.positions, usable)


def cpu_slots(options: QwenOptions) -> int:
    """The slots on a CPU."""
    return CPU_SLOTS if options.slots == "auto" else options.slots


def gib(count: int) -> str:
    """Bytes for people."""
    return f"{count / _GIB:.1f} GiB"


def _smaller(plan: MemoryPlan, options: QwenOptions, usable: int) -> str:
    """What would make one slot fit, if anything would."""
    without_heads = plan.total_bytes(1, options.positions) - options.prefix_bytes
    if without_heads <= usable:
        return "; a smaller qwen.prefix_bytes would do"
    return "; take a smaller checkpoint, or a device that nobody else uses"
