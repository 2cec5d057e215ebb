"""How simple a plan is: the fewest techniques win when speed is near. Knows names and points, no seconds."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import I64
from escala.model.host import PLACES
from escala.model.plan import (
    Compile,
    LocalWire,
    Offload,
    OptimizerStep,
    Plan,
    Plans,
    Recompute,
    Schedule,
    Split,
)

# Points: what a technique adds in set-up, debugging and points of failure. An order of preference, not a
# measurement: data parallelism first, then sharding, then what needs the model's consent (TP, CP, EP), then
# what cuts it (PP).
POINTS: Final = {
    "ddp": 1,
    "zero-1": 1,
    "zero": 2,
    "hsdp": 3,
    "tp": 3,
    "sp": 0,
    "cp": 3,
    "ep": 3,
    "pp": 4,
    "interleaved": 1,
    "zero-bubble": 2,
    "split": 1,
    "order": 1,
    "selective": 1,
    "recompute": 1,
    "first-layers": 2,
    "compile": 1,
    "fused-loss": 1,
    "local-steps": 3,
    "streamed": 1,
    "dynamic-cp": 1,
    "offload": 2,
    "optimizer-step": 1,
}


def complexity(plans: Plans) -> I64:
    """Points of all techniques that each plan uses; a single device without any has 0. Shape (n,)."""
    replicas = plans.dp * plans.cp
    partial = (plans.zero == 3) & (plans.shard < replicas)
    uses = {
        "ddp": (replicas > 1) & (plans.zero == 0),
        "zero-1": plans.zero == 1,
        "zero": (plans.zero > 1) & ~partial,
        "hsdp": partial,
        "tp": plans.tp > 1,
        "cp": plans.cp > 1,
        "ep": plans.ep > 1,
        "pp": plans.pp > 1,
        "interleaved": plans.schedule == Schedule.INTERLEAVED,
        "zero-bubble": plans.schedule == Schedule.ZERO_BUBBLE_V,
        "split": plans.split != Split.EVEN,
        "order": plans.placement != 0,
        "selective": plans.recompute == Recompute.SELECTIVE,
        "recompute": plans.recompute == Recompute.FULL,
        "first-layers": plans.recompute == Recompute.FIRST_LAYERS,
        "compile": plans.compile != Compile.OFF,
        "fused-loss": plans.fused_loss == 1,
        "local-steps": plans.local_steps > 1,
        "dynamic-cp": (plans.dynamic_cp == 1) & (plans.cp > 1),
        "streamed": (plans.local_fragments > 1) | (plans.local_overlap_steps > 0),
        "optimizer-step": plans.optimizer_step != OptimizerStep.WHOLE,
    }
    total = np.zeros(len(plans), np.int64)
    for name, used in uses.items():
        total += POINTS[name] * used
    for place in PLACES:
        total += POINTS["offload"] * (getattr(plans, place) != Offload.NONE)
    return total


@dataclass(frozen=True, slots=True)
class Family:
    """A technique whose best plan is always shown; `is_pure` uses nothing but data parallelism."""

    name: str
    title: str


FAMILIES: Final = (
    Family("single", "single device"),
    Family("ddp", "DDP"),
    Family("zero-1", "ZeRO-1"),
    Family("zero-2", "ZeRO-2"),
    Family("zero-3", "ZeRO-3 / FSDP"),
    Family("hsdp", "HSDP"),
    Family("tp", "tensor parallel"),
    Family("pp", "pipeline parallel"),
    Family("cp", "context parallel"),
    Family("ep", "expert parallel"),
)


def family_masks(plans: Plans) -> dict[str, np.ndarray]:
    """Which plans belong to each family: pure data parallel kinds, any plan with TP, PP, CP or EP."""
    replicas = plans.dp * plans.cp
    pure = (plans.tp * plans.pp * plans.cp * plans.ep) == 1
    whole = plans.shard == replicas
    three = plans.zero == 3
    keeps = (plans.zero == 2) | (three & (plans.reshard == 0) & whole)
    return {
        "single": plans.devices == 1,
        "ddp": pure & (plans.zero == 0) & (replicas > 1),
        "zero-1": pure & (plans.zero == 1),
        "zero-2": pure & keeps,
        "zero-3": pure & three & (plans.reshard == 1) & whole,
        "hsdp": pure & three & ~whole,
        "tp": plans.tp > 1,
        "pp": plans.pp > 1,
        "cp": plans.cp > 1,
        "ep": plans.ep > 1,
    }


def describe(plan: Plan) -> str:
    """One line for people: 'FSDP 128 × TP 8 + SP × PP 16 (interleaved 8) · mb 1 × 16 · selective'.

    The degrees between × multiply to the devices. Weights are sharded over the context-parallel ranks as
    well; experts are spread inside the data-parallel ranks.
    """
    parts = [_data_parallel(plan)]
    if plan.tp > 1:
        parts.append(f"TP {plan.tp}" + (" + SP" if plan.sp else ""))
    if plan.cp > 1:
        kind = plan.cp_kind.name.lower().replace("_", "-")
        parts.append(f"CP {plan.cp} ({kind}{', dynamic' if plan.dynamic_cp else ''})")
    if plan.pp > 1:
        parts.append(f"PP {plan.pp} ({_schedule(plan)})")
    tail = [" × ".join(part for part in parts if part) or "1 device"]
    if plan.ep > 1:
        tail.append(f"EP {plan.ep}" + (f" (expert TP {plan.etp})" if plan.etp > 1 else ""))
    tail.append(f"mb {plan.micro_batch}" + (f" × {plan.micro_batches}" if plan.micro_batches > 1 else ""))
    tail += _extras(plan)
    return " · ".join(tail)


def _data_parallel(plan: Plan) -> str:
    replicas, kept = plan.dp * plan.cp, "" if plan.reshard else " (no reshard)"
    if replicas == 1:
        return ""
    if plan.zero == 0:
        return f"DDP {plan.dp}" if plan.dp > 1 else ""
    if plan.zero < 3:
        return f"ZeRO-{plan.zero} {plan.dp}"
    if plan.shard < replicas:
        inside = plan.shard // plan.cp
        return f"HSDP {replicas // plan.shard}" + (f" × {inside}" if inside > 1 else " (over CP)") + kept
    return (f"FSDP {plan.dp}" if plan.dp > 1 else "FSDP (over CP)") + kept


def _schedule(plan: Plan) -> str:
    names = {
        Schedule.GPIPE: "GPipe",
        Schedule.ONE_F_ONE_B: "1F1B",
        Schedule.INTERLEAVED: f"interleaved {plan.virtual_stages}",
        Schedule.ZERO_BUBBLE_V: "zero-bubble V",
    }
    return names.get(plan.schedule, "") + ("" if plan.split == Split.EVEN else f", {plan.split.name.lower()}")


def _local(plan: Plan) -> str:
    """'500 local steps (int8, 8 fragments, 2 overlapped)'."""
    kinds = [] if plan.local_wire is LocalWire.FP32 else [plan.local_wire.name.lower()]
    kinds += [f"{plan.local_fragments} fragments"] if plan.local_fragments > 1 else []
    kinds += [f"{plan.local_overlap_steps} overlapped"] if plan.local_overlap_steps else []
    return f"{plan.local_steps} local steps" + (f" ({', '.join(kinds)})" if kinds else "")


def _extras(plan: Plan) -> list[str]:
    extras = []
    if plan.recompute is Recompute.FIRST_LAYERS:
        extras.append(f"recompute {plan.recompute_layers} layer{'s' * (plan.recompute_layers > 1)}")
    elif plan.recompute is not Recompute.NONE:
        extras.append(f"{plan.recompute.name.lower()} recompute")
    extras += ["compile"] if plan.compile is not Compile.OFF else []
    extras += ["fused loss"] if plan.fused_loss else []
    extras += [f"{plan.wide_layers} layers in 16 bit"] if plan.wide_layers else []
    extras += [_local(plan)] if plan.local_steps > 1 else []
    extras += _offloaded(plan)
    if plan.optimizer_step is not OptimizerStep.WHOLE:
        extras.append({1: "tiled step", 2: "step in backward"}[int(plan.optimizer_step)])
    extras += [f"order {plan.placement}"] if plan.placement != "tp-cp-dp-pp" else []
    return extras


OFFLOADED: Final = {
    "offload_params": "weights",
    "offload_optimizer": "optimizer",
    "offload_activations": "activations",
}


def moved(plan: Plan) -> tuple[str, ...]:
    """What a plan offloads, in words."""
    return tuple(word for name, word in OFFLOADED.items() if getattr(plan, name) is not Offload.NONE)


def _offloaded(plan: Plan) -> list[str]:
    """'weights + optimizer on the host', by place."""
    found = []
    for place, title in ((Offload.CPU, "on the host"), (Offload.NVME, "on disks")):
        those = [word for name, word in OFFLOADED.items() if getattr(plan, name) is place]
        if those:
            found.append(f"{' + '.join(those)} {title}")
    return found
