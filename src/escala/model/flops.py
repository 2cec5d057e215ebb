"""Work of one step as the field counts it: model FLOP, hardware FLOP, and the utilisations made of them.

Convention (stated wherever a figure is shown): matrix products and full, not halved, attention; output layer
counted; forward once and backward twice; recompute counted in hardware FLOP only. This is the convention of
Narayanan 2021 and of PaLM (Chowdhery 2022, appendix B), generalised to the network's own shapes.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from escala.model.cluster import Accelerator
from escala.model.columns import F64
from escala.model.lengths import useful_shares
from escala.model.matmuls import Core, LayerWork, layer_work, stack_shape
from escala.model.network import Learning, Network
from escala.model.plan import Plan, Plans, Precision, Recompute
from escala.model.precision import recipe
from escala.model.problem import Problem
from escala.model.stages import kinds
from escala.model.traced import traced_part
from escala.model.workload import Adapter, Workload

CONVENTION: Final = "model FLOP: products and full attention, output layer counted, recompute not"


def forward_flop(network: Network, sequence_tokens: int) -> tuple[float, float, float]:
    """Forward work of one sample: products of layers, attention, head; 2 * rows * inner * outer, unmasked.

    Scans of recurrent mixers count as attention, and so do the scores that select keys.
    """
    groups = forward_by_learning(network, sequence_tokens)
    products, attention = (sum(group[side] for group in groups.values()) for side in (0, 1))
    return products, attention, sum(head_flop(network, sequence_tokens))


def forward_by_learning(network: Network, sequence_tokens: int) -> dict[Learning, tuple[float, float]]:
    """Forward work of the layers of one sample, trained and frozen apart: products and attention."""
    found = dict.fromkeys(Learning, (0.0, 0.0))
    for learning, count, work in _layers(network, sequence_tokens):
        products, attention = found[learning]
        products += count * sum(float(m.flop[0]) for m in work.matmuls)
        attention += count * sum(_full(core) for core in work.cores)
        attention += count * sum(float(scan.flop[0]) for scan in work.scans)
        found[learning] = products, attention
    return found


def head_flop(network: Network, sequence_tokens: int) -> tuple[float, float]:
    """Forward work of the heads of one sample: 2 * tokens * hidden * outputs; trained ones, frozen ones."""
    found = [0.0, 0.0]
    for stack in network.stacks:
        if stack.head is not None:
            tokens = float(stack.tokens or sequence_tokens) if stack.head.is_per_token else 1.0
            tokens = tokens * stack.streams_per_sample
            flop = 2.0 * tokens * stack.hidden * stack.head.outputs * stack.head.predictions
            found[stack.head.is_frozen] += flop
        seen = None if stack.outside is None else traced_part(stack.outside)
        found[0] += 0.0 if seen is None else seen.flop
    return found[0], found[1]


def selection_flop(network: Network, sequence_tokens: int) -> float:
    """Forward work of one sample that selects keys, which has no backward: scores of indexers, unmasked."""
    every = (each for each in _layers(network, sequence_tokens) if each[0] is not Learning.STILL)
    return sum(n * sum(_full(core) for core in work.cores if core.is_forward_only) for _, n, work in every)


def _layers(
    network: Network, sequence_tokens: int, adapter: Adapter | None = None
) -> Iterator[tuple[Learning, int, LayerWork]]:
    one = Plans.of(Plan())
    for stack, block in kinds(network):
        work = layer_work(block, stack, stack_shape(one, stack, sequence_tokens), adapter)
        yield block.learning, stack.count(stack.blocks.index(block)), work


def adapter_flop(workload: Workload) -> float:
    """Forward work of the adapters in series of one sample: 4 * tokens * hidden * width for each."""
    every = _layers(workload.network, workload.sequence_tokens, workload.adapter)
    return sum(n * sum(float(m.flop[0]) for m in work.adapters) for _, n, work in every)


def useful_by_learning(workload: Workload) -> dict[Learning, tuple[float, float]]:
    """Forward work of one row without padding and masked documents: of layers, times its useful share."""
    of_products, of_attention = useful_shares(workload)
    groups = forward_by_learning(workload.network, workload.sequence_tokens)
    return {kind: (of_products * each[0], of_attention * each[1]) for kind, each in groups.items()}


def _full(core: Core) -> float:
    """Attention work without causal saving: 2 * score elements * (query + value width)."""
    return 2.0 * float(core.score_elements[0]) * core.width


def work_by_kind(workload: Workload) -> dict[str, float]:
    """Model FLOP of one step by the term that does them: 3 * forward, 2 * products of frozen weights.

    With adapters 2 * all. Frozen layers with nothing trained before them 1 * forward, as what selects keys.
    """
    batch = workload.global_batch
    trained = (2.0 if workload.is_frozen else 3.0) * batch
    passes = {
        Learning.TRAINED: (trained, trained),
        Learning.PASSED: (2.0 * batch, trained),
        Learning.STILL: (1.0 * batch, 1.0 * batch),
    }
    groups, (of_products, of_attention) = useful_by_learning(workload), useful_shares(workload)
    products, attention = (
        sum(times[side] * groups[kind][side] for kind, times in passes.items()) for side in (0, 1)
    )
    once = (trained - batch) * selection_flop(workload.network, workload.sequence_tokens) * of_attention
    heads = head_flop(workload.network, workload.sequence_tokens)
    head = trained * (of_products * heads[0]) + 2.0 * batch * (of_products * heads[1])
    added = 0.0 if workload.adapter is None else 3.0 * batch * adapter_flop(workload)
    return {"matmul_s": products + added, "attention_s": attention - once, "head_s": head}


def model_flop(workload: Workload) -> float:
    """Work of one step that the network asks for: 3 * forward * global batch, less for frozen weights."""
    return sum(work_by_kind(workload).values())


def hardware_flop(workload: Workload, plans: Plans) -> F64:
    """Model FLOP + the forward work that recompute repeats: layers * share of layers recomputed in full.

    Selective recompute repeats cheap operators or attention only; it is not counted. Shape (n,).
    Source: Korthikanti 2022, appendix A (hardware FLOP).
    """
    groups = useful_by_learning(workload)
    again = [sum(groups[kind]) for kind in (Learning.TRAINED, Learning.PASSED)]
    per_rank = np.maximum(workload.network.layers / plans.pp, 1.0)
    some = np.minimum(plans.recompute_layers / per_rank, 1.0)
    share = np.where(plans.recompute == Recompute.FIRST_LAYERS, some, 0.0)
    share = np.where(plans.recompute == Recompute.FULL, 1.0, share)
    return model_flop(workload) + share * sum(again) * workload.global_batch


def utilisation(flop: F64 | float, step_s: F64, devices: F64, peak_flop_per_s: float) -> F64:
    """FLOP / (seconds * devices * dense 16-bit peak): MFU with model FLOP, HFU with hardware FLOP."""
    return np.asarray(flop / (step_s * devices * peak_flop_per_s), np.float64)


def reference_peak_flop_per_s(problem: Problem) -> float:
    """The peak that utilisations are given against: that of the cluster's device."""
    return accelerator_peak_flop_per_s(problem.accelerator)


def accelerator_peak_flop_per_s(accelerator: Accelerator) -> float:
    """The peak of a device in its usual format: bf16, else fp16, else fp32, dense."""
    return accelerator.bf16_flop_per_s or accelerator.fp16_flop_per_s or accelerator.fp32_flop_per_s


def convention(accelerator: Accelerator, precision: Precision) -> str:
    """How MFU counts; names the peak where products are of a wider format, which cannot reach it."""
    usual = next((name for name in ("bf16", "fp16") if getattr(accelerator, f"{name}_flop_per_s")), "fp32")
    name = recipe(precision).peak
    if usual == "fp32" or name not in ("fp32", "tf32"):
        return CONVENTION
    return f"{CONVENTION}; a share of the {usual} peak, which {name} does not reach"
