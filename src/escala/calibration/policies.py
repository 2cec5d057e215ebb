"""From the columns about sharding, schedule, recompute and number format to the choices of a plan.

What a blank means is the software's (`software`); what had to be assumed is flagged.
"""

import re
from dataclasses import dataclass
from typing import Final

from escala.calibration.degrees import Degrees, method_of
from escala.calibration.failure import Unreadable
from escala.calibration.rows import Row, count
from escala.calibration.software import NO_CHECKPOINTS, RECIPE_WORDS, Software
from escala.model.cluster import Cluster
from escala.model.plan import Offload, Precision, Recompute, Schedule
from escala.model.precision import code
from escala.model.workload import Method

USUAL_CHUNKS: Final = (
    6  # virtual stages where none are printed: the divisor nearest to this (MLPerf GPT-3 has 6)
)
_RECOMPUTE: Final = {
    "full": Recompute.FULL,
    "selective": Recompute.SELECTIVE,
    "none": Recompute.NONE,
}
_ADAPTED: Final = (Method.LORA, Method.QLORA)


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
    if NO_CHECKPOINTS in row.other:
        return Recompute.NONE, 0, ()
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
    if sw.engine == "litgpt" and method_of(row) in _ADAPTED:
        zero = 0  # its peaks on 4 devices repeat those on 1: nothing was sharded
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
        return min(int(stage[1]), 3)
    if "shardedddp" in text or "distributed optimizer" in text:
        return 2 if "shardedddp" in text else 1
    return 3 if re.search(r"[fh]sdp|gemini|zero", text) else 0


def _group(text: str, how: Degrees, cluster: Cluster) -> int:
    """Ranks that share weights: within a slice or node where the text says so."""
    ranks = how.dp * how.cp
    printed = re.search(r"shard=(\d+)|fsdp (\d+)", text)
    inside = cluster.links[0].domain_devices // (how.tp * how.pp)
    wanted = ranks
    if printed:
        wanted = count(printed[1] or printed[2]) or ranks
    elif "slice" in text or "hsdp" in text:
        wanted = max(inside, 1)
    return wanted if ranks % min(wanted, ranks) == 0 and wanted <= ranks else ranks


def schedule(row: Row, how: Degrees, sw: Software, layers: int) -> tuple[Schedule, int, tuple[str, ...]]:
    """The pipeline's order and its virtual stages; blank is interleaved where the software does so."""
    if how.pp == 1:
        return Schedule.NONE, 1, ()
    chunks, imputed = row.vp or 1, ()
    overlaps = "ep_overlap=on" in row.other or "schedule=interleaved" in row.other.lower().replace(" ", "")
    # the recipes of dense networks interleave; those of experts deal their layers by hand
    dense_recipe = sw.engine == "megatron-bridge" and row.arch != "moe" and layers % how.pp == 0
    if row.vp is None and (sw.interleaves or overlaps or dense_recipe):
        return *_interleaved(_chunks(max(layers // how.pp, 1))), ("virtual stages",)
    return *_interleaved(chunks), imputed


def _interleaved(chunks: int) -> tuple[Schedule, int]:
    return (Schedule.INTERLEAVED, chunks) if chunks > 1 else (Schedule.ONE_F_ONE_B, 1)


def _chunks(layers_per_stage: int) -> int:
    divisors = [each for each in range(2, layers_per_stage + 1) if layers_per_stage % each == 0]
    return min(divisors, key=lambda each: abs(each - USUAL_CHUNKS), default=1)


def offloads(row: Row) -> dict[str, Offload]:
    """Which states live in host memory; FSDP keeps weights and optimizer states in one place."""
    text = row.offload.lower()
    cpu = Offload.CPU
    both = "full" in text or text == "cpu"
    if "fsdp" in row.sharding.lower():
        both |= "optimizer" in text or "param" in text
    return {
        "offload_optimizer": cpu if "optimizer" in text or both else Offload.NONE,
        "offload_params": cpu if "param" in text or both else Offload.NONE,
        "offload_activations": cpu if "activation" in text else Offload.NONE,
    }
