"""How many parameters a network has, in the classes that sharding tells apart. Knows shapes, no bytes.

Counts are exact integers of what an optimizer trains: buffers (router biases of DeepSeek-V3, rotary tables,
running statistics of batch norm) are not counted, tied weights are counted once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from escala.model.mixers import mixer_parameters
from escala.model.network import (
    Attention,
    Block,
    Convolution,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Linear,
    Mixer,
    Network,
    Part,
    Stack,
)
from escala.model.selection import pool_parameters
from escala.model.streams import stream_parameters
from escala.model.traces import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters by what can shard them.

    `column_row` is split by tensor parallelism (attention and dense feed-forward matrices with the biases of
    column-parallel ones), `expert` by expert parallelism (routed experts with their biases). `replicated` is
    whole on every tensor rank: norms, routers, biases of row-parallel maps, latent down-projections,
    positions, convolutions. `embedding` is the vocabulary table, `head` the output matrix when it is not
    tied, with its bias.
    """

    column_row: int = 0
    expert: int = 0
    replicated: int = 0
    embedding: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """All classes together."""
        return self.column_row + self.expert + self.replicated + self.embedding + self.head

    def __add__(self, other: "Parameters") -> "Parameters":
        """Class by class."""
        return Parameters(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __mul__(self, times: int) -> "Parameters":
        """The same parameters so many times, for equal layers."""
        return Parameters(**{f.name: getattr(self, f.name) * times for f in fields(self)})


def network_parameters(network: Network) -> Parameters:
    """Sum over stacks."""
    return _sum(stack_parameters(stack) for stack in network.stacks)


def active_parameters(network: Network) -> int:
    """Parameters that one token uses: all, but of the routed experts only top_k / experts.

    Source: DeepSeek-AI 2024 (arXiv 2412.19437), section 4.2, which counts activated parameters this way.
    """
    active = replace(network, stacks=tuple(_with_active_experts(stack) for stack in network.stacks))
    idle_routers = network_parameters(network).replicated - network_parameters(active).replicated
    return network_parameters(active).total + idle_routers


def stack_parameters(stack: Stack) -> Parameters:
    """Layers + embedding + final norm + head of one stack."""
    layers = _sum(block_parameters(b, stack.hidden) * stack.count(i) for i, b in enumerate(stack.blocks))
    return (
        layers
        + outer_parameters(stack)
        + embedding_parameters(stack.embedding, stack.hidden)
        + head_parameters(stack.head, stack.hidden)
    )


def outer_parameters(stack: Stack) -> Parameters:
    """Final norm, what stands outside the layers otherwise, and what a traced module has there."""
    own = Parameters(replicated=stack.final_norm_weights * stack.hidden + stack.other_parameters)
    return own if stack.outside is None else own + block_parameters(stack.outside, stack.hidden)


def block_parameters(block: Block, hidden: int) -> Parameters:
    """Parts + norms * vectors of each norm * hidden + what mixes residual streams."""
    norms = block.norms * block.norm_weights * hidden + block.other_parameters
    return Parameters(replicated=norms + stream_parameters(block, hidden)) + _sum(
        part_parameters(part, hidden) for part in block.parts
    )


def part_parameters(part: Part, hidden: int) -> Parameters:
    """Parameters of one part of a layer whose stream is `hidden` wide."""
    match part:
        case Attention(kv_rank=0):
            return grouped_attention_parameters(part, hidden)
        case Attention():
            return latent_attention_parameters(part, hidden)
        case Mixer():
            counts = mixer_parameters(part, hidden)
            return Parameters(column_row=counts.split, replicated=counts.replicated)
        case FeedForward():
            return feed_forward_parameters(part, hidden)
        case Experts():
            return expert_parameters(part, hidden)
        case Convolution():
            return convolution_parameters(part)
        case Linear():
            return linear_parameters(part)
        case Traced():
            return Parameters(replicated=part.parameters)


def grouped_attention_parameters(attention: Attention, hidden: int) -> Parameters:
    """Hidden * (heads * head dim + kv heads * (head dim + value dim) + heads * value dim), and biases.

    An output gate has its own map, hidden * heads * gate dim.
    The bias of the output map belongs to a row-parallel matrix and is replicated. Queries may come from a low
    rank with a norm, whole on each rank as what pools keys and indexes them; outputs may go through one.
    Source: Ainslie et al. 2023 (GQA), section 2; Shoeybi et al. 2019 (Megatron-LM), section 3 for the split.
    """
    query = attention.heads * attention.head_dim
    key = attention.kv_heads * attention.head_dim
    value = attention.kv_heads * attention.value_head_dim
    output = attention.heads * attention.value_head_dim
    gate = attention.heads * attention.gate_dim
    key, value = key * (attention.key_value_maps > 0), value * (attention.key_value_maps > 1)
    biases = attention.has_qkv_bias * (query + attention.has_key_bias * key + value + gate)
    own = (attention.query_rank or hidden) * query + hidden * (key + value + gate)
    whole = attention.query_rank * (hidden + 1) + pool_parameters(attention, hidden, attention.head_dim)
    if attention.pooled_tokens:
        whole += index_parameters(attention, hidden)
    return Parameters(
        column_row=own + _output_parameters(attention, output, hidden) + biases,
        replicated=whole + attention.has_output_bias * hidden + attention.other_parameters,
    )


def _output_parameters(attention: Attention, output: int, hidden: int) -> int:
    """Outputs of the heads * hidden, or * the rank of their group, and then all ranks * hidden."""
    if not attention.output_groups:
        return output * hidden
    return attention.output_rank * (output + attention.output_groups * hidden)


def latent_attention_parameters(attention: Attention, hidden: int) -> Parameters:
    """Down to the ranks, norms of the ranks, up to the heads, and the output map.

    `head_dim` is the whole query-key width of a head, its rotary part (`rope_head_dim`) included; the rotary
    key is one for all heads and comes from the down-projection. Down-projections are replicated over tensor
    ranks, as Megatron-Core does. Without a query rank the query is one full matrix. An indexer is replicated:
    queries from their rank, one key with its norm, a weight for each of its heads.
    Source: DeepSeek-AI 2024 (DeepSeek-V2, arXiv 2405.04434), section 2.1 and appendix C.
    """
    query = attention.heads * attention.head_dim
    plain_key_dim = attention.head_dim - attention.rope_head_dim
    key_value = attention.heads * (plain_key_dim + attention.value_head_dim)
    output = attention.heads * attention.value_head_dim
    query_down = attention.query_rank * (hidden + 1)
    key_value_down = hidden * (attention.kv_rank + attention.rope_head_dim) + attention.kv_rank
    biases = attention.has_output_bias * hidden
    up = (attention.query_rank or hidden) * query + attention.kv_rank * key_value
    whole = query_down + key_value_down + biases + index_parameters(attention, hidden)
    return Parameters(
        column_row=up + output * hidden + hidden * attention.heads * attention.gate_dim,
        replicated=whole + attention.other_parameters,
    )


def index_parameters(attention: Attention, hidden: int) -> int:
    """Queries of the indexer from the query rank, one key with its norm (2 vectors), weights of its heads.

    Pooled keys have a pool of the indexer's width in place of the key.

    Source: DeepSeek-AI 2025 (DeepSeek-V3.2), section 2.1; DeepseekV32Indexer of transformers 5.24.
    """
    if attention.index_heads == 0:
        return 0
    queries = (attention.query_rank or hidden) * attention.index_heads * attention.index_dim
    if attention.pooled_tokens:
        return (
            queries + hidden * attention.index_heads + pool_parameters(attention, hidden, attention.index_dim)
        )
    return queries + hidden * (attention.index_dim + attention.index_heads) + 2 * attention.index_dim


def feed_forward_parameters(part: FeedForward, hidden: int) -> Parameters:
    """Hidden * width * 2 maps (3 when gated); biases of the inner width are split, that of the output is not.

    Source: Shazeer 2020 (GLU variants), section 2; Shoeybi et al. 2019 (Megatron-LM), section 3.
    """
    inward = 2 if part.is_gated else 1
    return Parameters(
        column_row=(inward + 1) * hidden * part.width + part.has_bias * inward * part.width,
        replicated=part.has_bias * hidden,
    )


def expert_parameters(part: Experts, hidden: int) -> Parameters:
    """Router hidden * experts + experts * one feed-forward each + the shared feed-forward.

    Experts on a latent stream have one map into it and one out of it, whole on every tensor rank.

    Source: Fedus et al. 2021 (Switch), section 2; Dai et al. 2024 (DeepSeekMoE), section 3 for shared ones.
    """
    one = FeedForward(width=part.width, is_gated=part.is_gated, has_bias=part.has_bias)
    inside = part.latent_dim or hidden
    routed = Parameters(expert=part.experts * feed_forward_parameters(one, inside).total)
    routed = routed + Parameters(replicated=2 * hidden * part.latent_dim)
    router = Parameters(replicated=hidden * part.experts + part.other_parameters)
    if part.shared_width == 0:
        return routed + router
    return routed + router + feed_forward_parameters(replace(one, width=part.shared_width), hidden)


def convolution_parameters(part: Convolution) -> Parameters:
    """Outputs * inputs / groups * positions of the kernel + bias + norm; no plan here splits it."""
    kernel = part.outputs * (part.inputs // part.groups) * part.taps
    return Parameters(replicated=kernel + part.has_bias * part.outputs + part.norm_parameters)


def linear_parameters(part: Linear) -> Parameters:
    """Inputs * outputs + bias of the outputs, taken as column-parallel."""
    return Parameters(
        column_row=part.inputs * part.outputs + part.has_bias * part.outputs, replicated=part.other_parameters
    )


def embedding_parameters(embedding: Embedding | None, hidden: int) -> Parameters:
    """Vocabulary * width + (positions + types + patch inputs) * hidden + what feeds every layer.

    The width is the hidden width unless the table is factorised.
    """
    if embedding is None:
        return Parameters()
    rows = embedding.positions + embedding.types + embedding.patch_inputs
    return Parameters(
        embedding=embedding.vocab * (embedding.width or hidden) + embedding.further_table_parameters,
        replicated=rows * hidden + embedding.other_parameters,
    )


def head_parameters(head: Head | None, hidden: int) -> Parameters:
    """Hidden * outputs unless tied + bias of the outputs."""
    if head is None:
        return Parameters()
    matrix = 0 if head.is_tied else hidden * head.outputs
    return Parameters(head=matrix + head.has_bias * head.outputs, replicated=head.other_parameters)


def _with_active_experts(stack: Stack) -> Stack:
    blocks = tuple(replace(b, parts=tuple(_active(part) for part in b.parts)) for b in stack.blocks)
    return replace(stack, blocks=blocks)


def _active(part: Part) -> Part:
    return replace(part, experts=min(part.top_k, part.experts)) if isinstance(part, Experts) else part


def _sum(parts: Iterable[Parameters]) -> Parameters:
    return sum(parts, Parameters())
