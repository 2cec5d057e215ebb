"""From the columns about degrees and batches to how devices and sequences are divided.

What a blank means is the software's (`software`); what had to be assumed is flagged.
"""

import re
from dataclasses import dataclass
from typing import Final

from escala.calibration.failure import Unreadable
from escala.calibration.hardware import device_name
from escala.calibration.rows import Row, count
from escala.calibration.software import Software
from escala.catalog.accelerators import accelerator
from escala.model.network import Experts, Network
from escala.model.workload import Method

SWIFT_TIMES: Final = 16  # gradient accumulation of the ms-swift benchmark
_METHODS: Final = {
    "pretrain": Method.PRETRAIN,
    "full": Method.FULL,
    "lora": Method.LORA,
    "qlora": Method.QLORA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """How the devices are divided, and which of it was assumed."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    imputed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences of a step: all, at once on a rank, and how often; and which of it was assumed."""

    whole: int
    micro: int
    times: int
    imputed: tuple[str, ...] = ()


def method_of(row: Row) -> Method:
    """Which weights are trained."""
    found = _METHODS.get(row.method.lower() or "pretrain")
    if found is None:
        raise Unreadable("training method is not modelled")
    return found


def degrees(row: Row, network: Network, sw: Software) -> Degrees:
    """Degrees that multiply to the devices; dp is what the others leave."""
    devices = row.devices or 1
    tp, pp, cp, imputed = _lora_layout(row, sw) or (
        row.tp or 1,
        row.pp or 1,
        row.cp or 1,
        _no_layout(row, sw),
    )
    dp, rest = divmod(devices, tp * pp * cp)
    if rest or not dp:
        raise Unreadable("degrees do not multiply to the devices")
    if row.dp and row.dp != dp:
        dp = _single(row, dp)
    ep, etp = _expert_degrees(row, network, dp * cp * tp)
    return Degrees(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, imputed=imputed)


def _single(row: Row, dp: int) -> int:
    """One model over several devices layer by layer is no plan; a sharding degree in the dp column is."""
    if row.sharding and row.dp and dp % row.dp == 0:
        return dp
    raise Unreadable("degrees do not multiply to the devices")


def _no_layout(row: Row, sw: Software) -> tuple[str, ...]:
    """A table without any degree leaves the layout open: only small networks are surely replicated."""
    blank = row.tp is None and row.pp is None and row.dp is None and not row.sharding
    if not blank or (row.devices or 1) == 1:
        return ()
    small = row.arch == "cnn" or row.model.lower().startswith("bert")
    if not (small or sw.batch_is_whole):
        raise Unreadable("layout not printed")
    return ("layout",)


def _lora_layout(row: Row, sw: Software) -> tuple[int, int, int, tuple[str, ...]] | None:
    """Llama 2 70B LoRA of MLPerf: TP 4, 2 or 1 by memory of the device, CP = devices / (TP * batch)."""
    if sw.engine != "mlperf-nemo" or row.method != "lora" or row.tp or not row.global_batch:
        return None
    size = accelerator(device_name(row)).memory_bytes
    tp = min(4 if size < 100e9 else 2 if size < 170e9 else 1, row.devices or 1)
    cp = max((row.devices or 1) // (tp * row.global_batch), 1)
    return tp, 1, cp, ("layout",)


def _expert_degrees(row: Row, network: Network, ranks: int) -> tuple[int, int]:
    from_tags = re.search(r"ETP=(\d+)", row.other)
    etp = (count(from_tags[1]) if from_tags else None) or 1
    has_experts = any(isinstance(part, Experts) for b in network.main.blocks for part in b.parts)
    ep = (row.ep or 1) if has_experts else 1
    if ranks % (ep * etp):
        raise Unreadable("degrees do not multiply to the devices")
    return ep, etp if has_experts else 1


def batch(row: Row, how: Degrees, sw: Software) -> Batch:
    """Global batch = dp * micro-batch * times; whatever is blank follows the software's habit."""
    whole, imputed = _global_batch(row, how)
    if sw.batch_is_whole or (row.arch == "cnn" and not row.micro_batch):
        _check(whole % how.dp == 0 and whole >= how.dp)
        return Batch(whole=whole, micro=whole // how.dp, times=1, imputed=imputed)
    local, rest = divmod(whole, how.dp)
    micro, guessed = _micro_batch(row, how, local)
    if rest or local % micro or not local:
        times = _accumulation(row) or max(round(whole / (how.dp * micro)), 1)
        _check(abs(times * how.dp * micro / whole - 1) < 0.05 or _accumulation(row) is not None)
        return Batch(
            whole=times * how.dp * micro, micro=micro, times=times, imputed=(*imputed, *guessed, "batch")
        )
    return Batch(whole=whole, micro=micro, times=local // micro, imputed=imputed + guessed)


def _check(divides: bool) -> None:
    if not divides:
        raise Unreadable("batch does not divide among the ranks")


def _accumulation(row: Row) -> int | None:
    found = re.search(r"(?:grad_accum|GA)=(\d+)", row.other)
    return count(found[1]) if found else None


def _global_batch(row: Row, how: Degrees) -> tuple[int, tuple[str, ...]]:
    if row.global_batch:
        return row.global_batch, ()
    tokens = count(row.tags.get("tokens_per_step"))
    if tokens and row.sequence_tokens:
        return max(tokens // row.sequence_tokens, 1), ()
    per_rank = count(row.tags.get("batch_per_dp"))
    if per_rank:
        return per_rank * how.dp, ()
    if not row.micro_batch:
        return _usual_batch(row, how), ("batch",)
    if "maxtext" in row.framework.lower():  # its batch counts per device, whatever the mesh
        return row.micro_batch * (row.devices or 1), ()
    times = _accumulation(row)
    return row.micro_batch * how.dp * (times or 1), () if times or how.pp == 1 else ("batch",)


# Sequences per device in the recipes that MaxText's table of optimized models links (tpu-recipes, trillium).
_LINKED: Final = {r"mixtral 8x7b \| tpu v6e": 12, r"llama 3.1 8b \| tpu v6e": 4}
# Sequences or images per device where neither batch is printed, by source: scripts of the same repository.
_USUAL: Final = {r"mxnet": 128, r"maxtext gpu": 4, r"maxtext|tpu": 2}


def _usual_batch(row: Row, how: Degrees) -> int:
    if "ms-swift LLM" in row.source:  # batch 1, accumulated 16 times, unless the table varies it
        return (count(row.tags.get("Batch Size")) or 1) * SWIFT_TIMES
    if "tiering" in row.source:
        run = f"{row.model} | {row.accelerator}".lower()
        linked = next((each for word, each in _LINKED.items() if re.search(word, run)), None)
        if linked is not None:
            return linked * (row.devices or 1)
    words = f"{row.source} {row.framework}".lower()
    found = next((each for word, each in _USUAL.items() if re.search(word, words)), None)
    if found is None or (row.arch == "cnn" and "mxnet" not in words):
        raise Unreadable("batch not printed")
    return found * (row.devices or 1)


def _micro_batch(row: Row, how: Degrees, local: int) -> tuple[int, tuple[str, ...]]:
    if row.micro_batch:
        return row.micro_batch, ()
    times = _accumulation(row)
    if times and local % times == 0:
        return local // times, ()
    if "torchtitan" in row.framework.lower() and how.pp > 1:  # its default cuts a rank's batch into pp parts
        return max(local // how.pp, 1), ("micro-batch",)
    if "ms-swift LLM" in row.source:
        return max(local // SWIFT_TIMES, 1), ("micro-batch",)
    if "bert" in row.model.lower() and local:
        return _largest_divisor(local, 128), ("micro-batch",)
    return 1, ("micro-batch",)


def _largest_divisor(number: int, limit: int) -> int:
    return max(each for each in range(1, min(number, limit) + 1) if number % each == 0)
