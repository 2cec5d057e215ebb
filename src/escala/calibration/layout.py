"""From the columns about parallelism to a Plan: degrees, batch, sharding, recompute, number format.

What a blank means is the software's (`software`); what had to be assumed is flagged.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from escala.calibration.failure import Unreadable
from escala.calibration.rows import Row
from escala.calibration.software import RECIPE_WORDS, Software
from escala.model.cluster import Cluster
from escala.model.engine import AttentionKernel
from escala.model.network import Network
from escala.model.plan import Compile, Dispatcher, Offload, Plan, Precision, Recompute, Schedule
from escala.model.precision import code
from escala.model.workload import Method

SWIFT_TIMES: Final = 16  # gradient accumulation of the ms-swift benchmark
USUAL_CHUNKS: Final = (
    6  # virtual stages where none are printed: the divisor nearest to this (MLPerf GPT-3 has 6)
)
_RECOMPUTE: Final = {
    "full": Recompute.FULL,
    "selective": Recompute.SELECTIVE,
    "none": Recompute.NONE,
}
_METHODS: Final = {
    "pretrain": Method.PRETRAIN,
    "full": Method.FULL,
    "lora": Method.LORA,
    "qlora": Method.QLORA,
}
_ADAPTED: Final = (Method.LORA, Method.QLORA)
_FLASH: Final = (AttentionKernel.FLASH2, AttentionKernel.FLASH3)


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
    size = row.accelerator_gb or 80.0
    tp = min(4 if size < 100 else 2 if size < 170 else 1, row.devices or 1)
    cp = max((row.devices or 1) // (tp * row.global_batch), 1)
    return tp, 1, cp, ("layout",)


def _expert_degrees(row: Row, network: Network, ranks: int) -> tuple[int, int]:
    from_tags = re.search(r"ETP=(\d+)", row.other)
    etp = int(from_tags[1]) if from_tags else 1
    has_experts = any(type(part).__name__ == "Experts" for b in network.main.blocks for part in b.parts)
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
    return int(found[1]) if found else None


def _global_batch(row: Row, how: Degrees) -> tuple[int, tuple[str, ...]]:
    if row.global_batch:
        return row.global_batch, ()
    tokens = row.tags.get("tokens_per_step", "")
    if tokens.isdecimal() and row.sequence_tokens:
        return max(int(tokens) // row.sequence_tokens, 1), ()
    per_rank = row.tags.get("batch_per_dp", "")
    if per_rank.isdecimal():
        return int(per_rank) * how.dp, ()
    if not row.micro_batch:
        return _usual_batch(row, how), ("batch",)
    if "maxtext" in row.framework.lower():  # its batch counts per device, whatever the mesh
        return row.micro_batch * (row.devices or 1), ()
    times = _accumulation(row)
    return row.micro_batch * how.dp * (times or 1), () if times or how.pp == 1 else ("batch",)


# Sequences or images per device where neither batch is printed, by source: scripts of the same repository.
_USUAL: Final = {r"mxnet": 128, r"maxtext gpu": 4, r"maxtext|tpu": 2}


def _usual_batch(row: Row, how: Degrees) -> int:
    if "ms-swift" in row.source:  # batch 1, accumulated 16 times, unless the table varies it
        return int(row.tags.get("Batch Size", "1")) * SWIFT_TIMES
    words = f"{row.source} {row.framework}".lower()
    found = next((count for word, count in _USUAL.items() if re.search(word, words)), None)
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
    if "ms-swift" in row.source:
        return max(local // SWIFT_TIMES, 1), ("micro-batch",)
    if "bert" in row.model.lower() and local:
        return _largest_divisor(local, 128), ("micro-batch",)
    return 1, ("micro-batch",)


def _largest_divisor(number: int, limit: int) -> int:
    return max(each for each in range(1, min(number, limit) + 1) if number % each == 0)


def precision(row: Row, sw: Software) -> tuple[Precision, tuple[str, ...]]:
    """The number format as printed; MLPerf entries of Hopper and later that print none ran in fp8."""
    words = f"{row.other} {row.notes}".lower()
    label = re.search(r"(?:precision_label|recipe)=([^;]+)", words)
    if row.precision == "fp8":
        found = next((name for word, name in RECIPE_WORDS.items() if label and word in label[1]), "fp8")
        return code(found), ()
    if row.precision:
        return _format(row)
    if sw.engine in ("mlperf-nemo", "mlperf-bert") and not row.accelerator.startswith(("A100", "V100")):
        return code("fp8"), ("precision",)
    old = row.accelerator.startswith(("V100", "P100", "RTX-2080", "Titan"))
    return code("fp16" if old or row.arch == "cnn" else "bf16"), ("precision",)


def _format(row: Row) -> tuple[Precision, tuple[str, ...]]:
    named = row.precision
    if named == "fp32" and row.arch == "cnn" and "Kempner" in row.accelerator:
        named = "tf32"  # convolutions take it by default
    try:
        return code(named), ()
    except ValueError:
        raise Unreadable("number format is not modelled") from None


def recompute(row: Row, sw: Software, method: Method, layers: int) -> tuple[Recompute, int, tuple[str, ...]]:
    """The policy, the layers it covers when not all, and "recompute" when the table prints none."""
    if row.recompute == "selective" and "fms-fsdp" in row.framework.lower():
        return _share_of_blocks(row, layers)
    if row.recompute in _RECOMPUTE:
        return _RECOMPUTE[row.recompute], 0, ()
    if row.arch == "cnn":
        return Recompute.NONE, 0, ()
    adapted = sw.recompute_adapted if method in _ADAPTED else None
    return adapted or sw.recompute, 0, ("recompute",)


def _share_of_blocks(row: Row, layers: int) -> tuple[Recompute, int, tuple[str, ...]]:
    """Every n-th block: the share that HFU / MFU = 1 + share / 3 says."""
    if not (row.mfu_percent and row.hfu_percent):
        return Recompute.FIRST_LAYERS, layers // 2, ("recompute",)
    share = min(max(3 * (row.hfu_percent / row.mfu_percent - 1), 0.0), 1.0)
    return Recompute.FIRST_LAYERS, max(round(share * layers), 1), ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """ZeRO stage, whether weights are gathered again for backward, and ranks that share."""

    zero: int
    reshard: bool
    shard: int


def sharding(row: Row, how: Degrees, sw: Software, cluster: Cluster) -> Sharding:
    """What the sharding column means; blank means the software's habit.

    "No resharding after forward" keeps gathered weights: its traffic is that of ZeRO-1, one gather a step.
    """
    ranks = how.dp * how.cp
    text = row.sharding.lower()
    zero = _stage(text) if text else sw.zero
    if zero == 3 and "no resharding" in text:
        zero = 1
    if ranks == 1:
        return Sharding(zero=0 if zero < 3 else 3, reshard=False, shard=1)
    shard = _group(text, how, cluster) if zero == 3 else ranks if zero else 1
    keeps = "grad_op" in text or how.pp > 1
    return Sharding(zero=zero, reshard=zero == 3 and not keeps, shard=shard)


def _stage(text: str) -> int:
    stage = re.search(r"zero-?(\d)", text)
    if stage:
        return int(stage[1])
    if "shardedddp" in text or "distributed optimizer" in text:
        return 2 if "shardedddp" in text else 1
    return 3 if re.search(r"fsdp|gemini|zero", text) else 0


def _group(text: str, how: Degrees, cluster: Cluster) -> int:
    """Ranks that share weights: within a slice or node where the text says so."""
    ranks = how.dp * how.cp
    printed = re.search(r"shard=(\d+)|fsdp (\d+)", text)
    inside = cluster.links[0].domain_devices // (how.tp * how.pp)
    wanted = ranks
    if printed:
        wanted = int(printed[1] or printed[2])
    elif "slice" in text or "hsdp" in text:
        wanted = max(inside, 1)
    return wanted if ranks % min(wanted, ranks) == 0 and wanted <= ranks else ranks


def schedule(row: Row, how: Degrees, sw: Software, layers: int) -> tuple[Schedule, int, tuple[str, ...]]:
    """The pipeline's order and its virtual stages; blank is interleaved where the software does so."""
    if how.pp == 1:
        return Schedule.NONE, 1, ()
    chunks, imputed = row.vp or 1, ()
    overlaps = "ep_overlap=on" in row.other or "schedule=interleaved" in row.other.lower().replace(" ", "")
    if row.vp is None and (sw.interleaves or overlaps):
        return *_interleaved(_chunks(max(layers // how.pp, 1))), ("virtual stages",)
    return *_interleaved(chunks), imputed


def _interleaved(chunks: int) -> tuple[Schedule, int]:
    return (Schedule.INTERLEAVED, chunks) if chunks > 1 else (Schedule.ONE_F_ONE_B, 1)


def _chunks(layers_per_stage: int) -> int:
    divisors = [each for each in range(2, layers_per_stage + 1) if layers_per_stage % each == 0]
    return min(divisors, key=lambda each: abs(each - USUAL_CHUNKS), default=1)


def offloads(row: Row) -> dict[str, Offload]:
    """Which states live in host memory."""
    text = row.offload.lower()
    cpu = Offload.CPU
    whole = "full" in text or text == "cpu"
    return {
        "offload_optimizer": cpu if "optimizer" in text or whole else Offload.NONE,
        "offload_params": cpu if "param" in text or whole else Offload.NONE,
        "offload_activations": cpu if "activation" in text else Offload.NONE,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A plan, the batch it makes and the fields that had to be assumed for it."""

    plan: Plan
    batch: Batch
    imputed: tuple[str, ...]


def layout(row: Row, network: Network, cluster: Cluster, sw: Software) -> Layout:
    """The plan that a row ran."""
    method, layers = method_of(row), network.layers
    how = degrees(row, network, sw)
    amount = batch(row, how, sw)
    shared = sharding(row, how, sw, cluster)
    order, chunks, open_order = schedule(row, how, sw, layers)
    number, open_number = precision(row, sw)
    again, again_layers, open_again = recompute(row, sw, method, layers)
    if order is Schedule.INTERLEAVED and amount.times % how.pp:
        order, chunks = Schedule.ONE_F_ONE_B, 1
    values: dict[str, Any] = offloads(row)
    plan = Plan(
        dp=how.dp,
        tp=how.tp,
        pp=how.pp,
        cp=how.cp,
        ep=how.ep,
        etp=how.etp,
        sp=row.sp if row.sp is not None else (sw.sp and how.tp > 1),
        zero=shared.zero,
        reshard=shared.reshard,
        shard=shared.shard,
        schedule=order,
        virtual_stages=chunks,
        micro_batch=amount.micro,
        micro_batches=amount.times,
        dispatcher=_dispatcher(row),
        recompute=again,
        recompute_layers=again_layers,
        precision=number,
        compile=_compile(row, sw),
        **values,
    )
    return Layout(
        plan=plan, batch=amount, imputed=how.imputed + amount.imputed + open_order + open_number + open_again
    )


def _dispatcher(row: Row) -> Dispatcher:
    is_fused = re.search(r"deepep|hybridep", f"{row.other} {row.framework}".lower())
    return Dispatcher.FUSED if is_fused else Dispatcher.ALL_TO_ALL


def _compile(row: Row, sw: Software) -> Compile:
    if sw.compile is not Compile.OFF or not row.compiled or sw.batch_is_whole:
        return sw.compile
    return Compile.DEFAULT
