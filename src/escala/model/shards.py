"""Parameters that a rank of each slot holds after tensor, pipeline and expert parallelism.

Counts of parameters, not bytes: bytes are the engine's affair (`memory`).
"""

from dataclasses import dataclass, replace

import numpy as np

from escala.model.columns import F64, I64
from escala.model.matmuls import bottlenecks
from escala.model.mixers import in_widths
from escala.model.network import (
    Attention,
    Block,
    Experts,
    FeedForward,
    Learning,
    Linear,
    Mixer,
    Network,
    Stack,
)
from escala.model.parameters import (
    Parameters,
    block_parameters,
    embedding_parameters,
    head_parameters,
    outer_parameters,
)
from escala.model.plan import Plans
from escala.model.stages import Slots, kinds
from escala.model.traces import Traced
from escala.model.workload import Lora, Method, Workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shards:
    """Parameters of each pair on one rank, before data-parallel sharding.

    `dense` and `expert` are those of the layers, `ends` embedding and head (with the norms around them),
    `largest` the biggest layer (the unit that FSDP gathers), `largest_trained` the biggest whose gradients
    are reduced, `still` those without backward, `trained_...` what the optimizer updates. Shapes: (pairs,).
    """

    dense: F64
    expert: F64
    ends: F64
    largest: F64
    largest_trained: F64
    still: F64
    trained_dense: F64
    trained_expert: F64

    @property
    def total(self) -> F64:
        """All parameters on the rank."""
        return self.dense + self.expert + self.ends


def expert_replicas(plans: Plans) -> I64:
    """Ranks that hold the same experts: dp * cp * tp / (ep * etp), at least 1."""
    return np.maximum(1, plans.dp * plans.cp * plans.tp // (plans.ep * plans.etp))


def shards(workload: Workload, plans: Plans, pairs: Slots) -> Shards:
    """Parameters on one rank of every pair: matrices / tp + replicated, experts / (ep * etp), ends / tp."""
    network, take = workload.network, pairs.row
    tp = plans.tp[take].astype(np.float64)
    experts_over = (plans.ep * plans.etp)[take].astype(np.float64)
    zero = np.zeros(len(take))
    dense, expert, largest, adapters, expert_adapters = zero, zero, zero, zero, zero
    frozen_dense, frozen_expert, largest_trained, still = zero, zero, zero, zero
    for kind, (stack, block) in enumerate(kinds(network)):
        count = pairs.counts[:, kind]
        own = block_parameters(block, stack.hidden)
        of_layer = own.column_row / tp + own.replicated
        of_experts = own.expert / experts_over
        dense = dense + count * of_layer
        expert = expert + count * of_experts
        largest = np.maximum(largest, np.where(count > 0, of_layer + of_experts, 0.0))
        if block.learning is not Learning.TRAINED:
            frozen_dense, frozen_expert = frozen_dense + count * of_layer, frozen_expert + count * of_experts
            still = still + count * (of_layer + of_experts) * (block.learning is Learning.STILL)
            continue
        largest_trained = np.maximum(largest_trained, np.where(count > 0, of_layer + of_experts, 0.0))
        if workload.is_frozen:
            outside, inside = adapter_parameters(block, stack, workload)
            adapters = adapters + count * outside
            expert_adapters = expert_adapters + count * inside / experts_over
    ends = end_parameters(network, pairs, tp)
    trained = without_frozen_ends(network)
    trained_ends = ends if trained is network else end_parameters(trained, pairs, tp)
    frozen = workload.is_frozen
    return Shards(
        dense=dense,
        expert=expert,
        ends=ends,
        largest=largest,
        largest_trained=largest_trained,
        still=still,
        trained_dense=adapters if frozen else dense - frozen_dense + trained_ends,
        trained_expert=expert_adapters if frozen else expert - frozen_expert,
    )


def without_frozen_ends(network: Network) -> Network:
    """The network with only those ends that are trained; a frozen tied head shares a frozen table."""
    stacks = tuple(_trained_ends(stack) for stack in network.stacks)
    return network if stacks == network.stacks else replace(network, stacks=stacks)


def _trained_ends(stack: Stack) -> Stack:
    own = replace(stack, final_norm_weights=0, other_parameters=0) if stack.is_frozen else stack
    if own.embedding is not None and own.embedding.is_frozen:
        own = replace(own, embedding=None)
    return replace(own, head=None) if own.head is not None and own.head.is_frozen else own


def end_parameters(network: Network, pairs: Slots, tp: F64) -> F64:
    """Embedding on the first rank, head and final norm on the last; a tied table is on both when they differ.

    So is one that predicts further tokens, which are embedded on the last rank. Vocabulary tables are split
    by tensor parallelism.
    """
    front, back = _ends(network)
    tied = any(s.head is not None and (s.head.is_tied or s.head.predictions > 1) for s in network.stacks)
    embedding = front.embedding / tp + front.replicated
    head = back.head / tp + back.replicated
    copy = np.where(pairs.has_embedding > 0, 0.0, front.embedding / tp) if tied else 0.0
    return pairs.has_embedding * embedding + pairs.has_head * (head + copy)


def _ends(network: Network) -> tuple[Parameters, Parameters]:
    front = back = Parameters()
    for stack in network.stacks:
        front = front + embedding_parameters(stack.embedding, stack.hidden)
        back = back + outer_parameters(stack) + head_parameters(stack.head, stack.hidden)
    return front, back


def largest_matrix(network: Network, plans: Plans) -> F64:
    """Parameters of the biggest matrix of any layer on one rank; experts are one stacked matrix.

    Of a traced layer its matrices are not known one by one: the whole.
    """
    most = np.zeros(len(plans))
    for stack, block in kinds(network):
        for part in block.parts:
            if isinstance(part, Attention):
                most = np.maximum(most, stack.hidden * part.heads * part.head_dim / plans.tp)
            elif isinstance(part, Mixer):
                most = np.maximum(most, stack.hidden * in_widths(part)[0] / plans.tp)
            elif isinstance(part, FeedForward):
                most = np.maximum(most, stack.hidden * part.width / plans.tp)
            elif isinstance(part, Experts):
                held = part.experts / (plans.ep * plans.etp)
                most = np.maximum(most, stack.hidden * part.width * held)
            elif isinstance(part, Traced):
                most = np.maximum(most, part.parameters)
    return most


def adapter_parameters(block: Block, stack: Stack, workload: Workload) -> tuple[float, float]:
    """Trained weights that a method adds to one frozen layer, outside and inside experts."""
    if workload.lora is not None:
        return lora_parameters(block, stack, workload.lora)
    if workload.adapter is None:
        return 0.0, 0.0
    width, hidden = workload.adapter.width, stack.hidden
    return float(bottlenecks(block) * (2 * hidden * width + width + hidden)), 0.0


def lora_parameters(block: Block, stack: Stack, lora: Lora) -> tuple[float, float]:
    """Adapter weights of one layer, outside and inside experts: rank * (inputs + outputs) of each map.

    Tensor parallelism does not divide adapters; those of an expert are where the expert is.

    Source: Hu et al. 2021 (LoRA), section 4.1.
    """
    found = {False: 0, True: 0}
    for part in block.parts:
        sides = dict(linear_maps(part, stack.hidden))
        found[isinstance(part, Experts)] += sum(sides.get(target, 0) for target in lora.targets)
    return float(lora.rank * found[False]), float(lora.rank * found[True])


def linear_maps(part: object, hidden: int) -> list[tuple[str, int]]:
    """The linear maps of one part by name, with inputs + outputs of each; those of all experts together."""
    if isinstance(part, Attention):
        query, key = part.heads * part.head_dim, part.kv_heads * part.head_dim
        value, out = part.kv_heads * part.value_head_dim, part.heads * part.value_head_dim
        return [("q", hidden + query), ("k", hidden + key), ("v", hidden + value), ("o", out + hidden)]
    if isinstance(part, Mixer):
        return [("in", hidden + in_widths(part)[0]), ("out", part.values + hidden)]
    if isinstance(part, FeedForward):
        up = [("up", hidden + part.width), ("down", part.width + hidden)]
        return [("gate", hidden + part.width), *up] if part.is_gated else up
    if isinstance(part, Experts):
        side = (hidden + part.width) * part.experts
        return [("gate", side), ("up", side), ("down", side)]
    if isinstance(part, Linear):
        return [("linear", part.inputs + part.outputs)]
    return []


def base_weight_bytes(workload: Workload) -> float | None:
    """Bytes of a frozen base weight: 2 for LoRA, 0.516 for 4-bit double-quantised QLoRA; None when trained.

    NF4 with double quantisation: 0.5 + 1/64 + 4/16384 bytes. Source: Dettmers et al. 2023 (QLoRA), section 3.
    """
    if workload.method is Method.QLORA:
        return 0.5 + 1 / 64 + 4 / 16384
    return 2.0 if workload.is_frozen else None


def sharing(plans: Plans, take: I64) -> tuple[F64, F64]:
    """Ranks that states of dense and of expert parameters are sharded over.

    Experts are shared inside the shard group only: shard * tp / (ep * etp), at least 1.
    """
    return plans.shard[take].astype(np.float64), expert_shard(plans)[take].astype(np.float64)


def expert_shard(plans: Plans) -> I64:
    """Ranks of a shard group that hold the same experts: shard * tp / (ep * etp), at least 1."""
    inside = plans.shard * plans.tp // (plans.ep * plans.etp)
    return np.asarray(np.clip(inside, 1, expert_replicas(plans)), np.int64)
