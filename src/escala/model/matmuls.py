"""The matrix products, attention cores and expert traffic of one layer on one rank. Shapes only, no seconds.

Rows are tokens of one micro-batch on one context-parallel rank; inner and outer are the matrix after tensor
and expert parallelism.
"""

from dataclasses import dataclass, field

import numpy as np

from escala.model.columns import F64
from escala.model.mixers import ScanWork, in_widths, low_maps, scan_work
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Learning,
    Mixer,
    Part,
    Stack,
)
from escala.model.plan import ContextKind, Plans
from escala.model.precision import compute_bytes
from escala.model.selection import core_width, indexed_keys, mean_pooled_keys, pool_outputs, seen_pooled_keys
from escala.model.streams import mixing_weights
from escala.model.traces import Attended, Grows, Product, Traced
from escala.model.workload import Adapter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """How one micro-batch lies on one rank: tokens, bytes of a number, the degrees that divide the layer.

    `sequence_tokens` is the length that queries look back over: the sequence, or less where rows vary. `load`
    is what the rank's experts get over the mean of all ranks; see `loads`.
    """

    samples: F64
    sequence_tokens: F64 | float
    tokens: F64
    split_tokens: F64
    element_bytes: F64
    tp: F64
    cp: F64
    ep: F64
    etp: F64
    ring_ranks: F64
    load: F64

    def routed_tokens(self, part: Experts) -> F64:
        """Rows of the experts of a rank: tokens * top_k * ETP / TP * load."""
        return self.tokens * part.top_k * self.etp / self.tp * self.load

    @classmethod
    def of(
        cls,
        plans: Plans,
        row_tokens: F64 | float,
        key_tokens: F64 | float | None = None,
        per_sample: int = 1,
    ) -> "Shape":
        """The shape of each plan for rows of the given length; SP splits the tokens outside matrices.

        Where documents or rows vary, queries look back over `key_tokens` on average, else over the row.
        """
        samples = plans.micro_batch.astype(np.float64) * per_sample
        cp = plans.cp.astype(np.float64)
        tp = plans.tp.astype(np.float64)
        tokens = samples * row_tokens / cp
        return cls(
            samples=samples,
            sequence_tokens=1.0 * (row_tokens if key_tokens is None else key_tokens),
            tokens=tokens,
            split_tokens=tokens / np.where(plans.sp == 1, tp, 1.0),
            element_bytes=compute_bytes(plans.precision),
            tp=tp,
            cp=cp,
            ep=plans.ep.astype(np.float64),
            etp=plans.etp.astype(np.float64),
            ring_ranks=np.where(plans.cp_kind == ContextKind.RING, cp, 1.0),
            load=np.ones(len(plans)),
        )


def stack_shape(plans: Plans, stack: Stack, sequence_tokens: int) -> Shape:
    """The shape of the streams of one stack: their own length or the sequence's, as many as a sample has."""
    return Shape.of(plans, stack.tokens or sequence_tokens, per_sample=stack.streams_per_sample)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matmul:
    """`count` products of (rows x inner) by (inner x outer).

    `is_grouped` marks experts in one launch, `convolution` a kernel of its own.
    """

    rows: F64
    inner: F64
    outer: F64
    count: F64
    is_grouped: bool = False
    convolution: Convolution | None = None

    @property
    def flop(self) -> F64:
        """Forward work: 2 * rows * inner * outer, for all products."""
        return 2.0 * self.rows * self.inner * self.outer * self.count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Core:
    """One attention core: queries of this rank, heads of this rank, mean keys per query, head widths.

    `batches` are heads * samples, which the kernels of a batched softmax run over.
    `score_elements` is what an unfused kernel writes: every query against every key of its window. A ring
    runs one kernel for the keys of each rank: `block_keys`. A selection gets no gradient: `is_forward_only`.
    """

    queries: F64
    heads: F64
    batches: F64
    keys: F64 | float
    all_keys: F64 | float
    block_keys: F64
    width: float
    is_aligned: bool
    is_forward_only: bool = False

    @property
    def flop(self) -> F64:
        """Forward work: 2 * queries * heads * keys * (query width + value width)."""
        return 2.0 * self.queries * self.heads * self.keys * self.width

    @property
    def score_elements(self) -> F64:
        """Elements of the score matrix: queries * heads * keys in the window, unmasked."""
        return self.queries * self.heads * self.all_keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerWork:
    """What one layer of a kind has to do on one rank, forward, for one micro-batch.

    A token that is dispatched counts once for each of the `choices` of its experts, `routed_width` wide.
    """

    matmuls: list[Matmul] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    scans: list[ScanWork] = field(default_factory=list)
    dispatched_tokens: F64 | None = None
    routed_tokens: F64 | None = None
    choices: int = 0
    routed_width: int = 0
    adapters: list[Matmul] = field(default_factory=list)


def layer_work(block: Block, stack: Stack, shape: Shape, adapter: Adapter | None = None) -> LayerWork:
    """Matrix products, attention cores, scans and expert traffic of one layer, forward, on one rank."""
    matmuls: list[Matmul] = []
    cores: list[Core] = []
    scans: list[ScanWork] = []
    dispatched = routed = None
    choices = routed_width = 0
    matmuls += _mixing(block, stack.hidden, shape)
    for part in block.parts:
        matmuls += part_matmuls(part, stack.hidden, shape)
        if isinstance(part, Attention):
            cores += [_core(part, shape), *_index_core(part, shape)]
        if isinstance(part, Mixer):
            scans.append(scan_work(part, shape.tokens, shape.sequence_tokens, shape.tp))
        if isinstance(part, Traced):
            cores += [_attended(each, shape) for each in part.attended for _ in range(each.launches)]
        if isinstance(part, Experts):
            routed = shape.routed_tokens(part)
            dispatched = routed / shape.etp
            choices, routed_width = part.top_k, part.latent_dim or stack.hidden
    return LayerWork(
        matmuls=matmuls,
        cores=cores,
        scans=scans,
        dispatched_tokens=dispatched,
        routed_tokens=routed,
        choices=choices,
        routed_width=routed_width,
        adapters=_bottlenecks(block, stack, shape, adapter),
    )


def part_matmuls(part: Part, hidden: int, shape: Shape) -> list[Matmul]:
    """The matrix products of one part on one rank, in execution order."""
    if isinstance(part, Attention):
        return [*_attention(part, hidden, shape), *_index_products(part, hidden, shape)]
    if isinstance(part, Mixer):
        return _mixer(part, hidden, shape)
    if isinstance(part, FeedForward):
        return _feed_forward(shape.tokens, hidden, part.width / shape.tp, part.is_gated)
    if isinstance(part, Experts):
        return _experts(part, hidden, shape)
    if isinstance(part, Convolution):
        return [_convolution(part, shape)]
    if isinstance(part, Traced):
        return [_traced(each, shape) for each in part.products for _ in range(each.launches)]
    return [_product(shape.tokens, part.inputs, part.outputs)]


def bottlenecks(block: Block) -> int:
    """Adapters in series in one layer: one behind each part that writes to the stream.

    Source: Houlsby et al. 2019, section 2.1: behind the attention and behind the feed-forward.
    """
    return block.sublayers


def bottleneck_bytes(adapter: Adapter | None, block: Block, stack: Stack, shape: Shape) -> F64:
    """Bytes that adapters in series keep: 2 for each input of the way down, 4 for each element between.

    What the activation between the two products reads and what it writes.
    """
    if adapter is None or block.learning is not Learning.TRAINED:
        return np.zeros_like(shape.tokens)
    return bottlenecks(block) * (2.0 * stack.hidden + 4.0 * adapter.width) * shape.split_tokens


def _bottlenecks(block: Block, stack: Stack, shape: Shape, adapter: Adapter | None) -> list[Matmul]:
    """Two products of each adapter in series: hidden to width and back; no rank shares them with another."""
    if adapter is None or block.learning is not Learning.TRAINED:
        return []
    count = bottlenecks(block)
    down = _product(shape.split_tokens, stack.hidden, adapter.width, count)
    return [down, _product(shape.split_tokens, adapter.width, stack.hidden, count)]


def _product(rows: F64, inner: F64 | float, outer: F64 | float, count: F64 | float = 1.0) -> Matmul:
    ones = np.ones_like(rows)
    return Matmul(rows=rows, inner=ones * inner, outer=ones * outer, count=ones * count)


def _mixing(block: Block, hidden: int, shape: Shape) -> list[Matmul]:
    """Products of hyper-connections: weights from all n streams, and n x n of them with the streams."""
    made, n = mixing_weights(block), block.streams
    if not made:
        return []
    weights = _product(shape.split_tokens, n * hidden, made, block.sublayers)
    return [weights, _product(shape.split_tokens * hidden, n, n, block.sublayers)]


def _mixer(part: Mixer, hidden: int, shape: Shape) -> list[Matmul]:
    """Maps in (low ranks whole on each rank), the maps behind them, the map out."""
    wide, low = in_widths(part)
    down = [_product(shape.split_tokens, hidden, low)] if low else []
    inside = [_product(shape.tokens, inner, outer / shape.tp) for inner, outer in low_maps(part)]
    into = _product(shape.tokens, hidden, wide / shape.tp)
    return [into, *down, *inside, _product(shape.tokens, part.values / shape.tp, hidden)]


def _index_products(part: Attention, hidden: int, shape: Shape) -> list[Matmul]:
    """Maps of an indexer, which every tensor rank runs whole: queries, and key with the weights of heads."""
    if part.index_heads == 0:
        return []
    queries = _product(shape.tokens, part.query_rank or hidden, part.index_heads * part.index_dim)
    keys = pool_outputs(part, part.index_dim) or part.index_dim
    return [queries, _product(shape.tokens, hidden, keys + part.index_heads)]


def _attention(part: Attention, hidden: int, shape: Shape) -> list[Matmul]:
    out = _product(shape.tokens, part.heads * part.value_head_dim / shape.tp, hidden)
    gate = [_product(shape.tokens, hidden, part.heads * part.gate_dim / shape.tp)] if part.gate_dim else []
    if part.query_rank and not part.kv_rank:
        return _low_rank_attention(part, hidden, shape)
    if not part.kv_rank:
        own, read = part.heads * (part.head_dim + part.gate_dim), _key_value_width(part)
        if part.source_tokens is None:
            return [_product(shape.tokens, hidden, (own + read) / shape.tp), out]
        source = shape.samples * part.source_tokens / shape.cp
        return [
            _product(shape.tokens, hidden, own / shape.tp),
            _product(source, hidden, read / shape.tp),
            out,
        ]
    query = part.heads * part.head_dim / shape.tp
    key_value = part.heads * (part.head_dim - part.rope_head_dim + part.value_head_dim) / shape.tp
    down = part.query_rank + part.kv_rank + part.rope_head_dim
    return [
        _product(shape.split_tokens, hidden, down),
        _product(shape.tokens, part.query_rank or hidden, query),
        _product(shape.tokens, part.kv_rank, key_value),
        *gate,
        out,
    ]


def _low_rank_attention(part: Attention, hidden: int, shape: Shape) -> list[Matmul]:
    """Queries through a low rank, keys and values (and what pools them), outputs through groups of ranks."""
    query, out = part.heads * part.head_dim / shape.tp, part.heads * part.value_head_dim
    groups, pooled = part.output_groups, pool_outputs(part, part.head_dim)
    outputs = [_product(shape.tokens, out / shape.tp, hidden)]
    if groups:
        inner = groups * part.output_rank / shape.tp
        each = _product(shape.tokens, out / groups, part.output_rank, groups / shape.tp)
        outputs = [each, _product(shape.tokens, inner, hidden)]
    return [
        _product(shape.split_tokens, hidden, part.query_rank),
        _product(shape.tokens, part.query_rank, query),
        _product(shape.tokens, hidden, _key_value_width(part) / shape.tp + pooled),
        *outputs,
    ]


def _key_value_width(part: Attention) -> int:
    """Outputs of the maps for keys and values, as far as the layer has its own."""
    dims = (0, part.head_dim, part.head_dim + part.value_head_dim)
    return part.kv_heads * dims[part.key_value_maps]


def _feed_forward(
    rows: F64, hidden: int, width: F64, is_gated: bool, count: F64 | float = 1.0
) -> list[Matmul]:
    up = 2.0 * width if is_gated else width
    return [_product(rows, hidden, up, count), _product(rows, width, hidden, count)]


def _experts(part: Experts, hidden: int, shape: Shape) -> list[Matmul]:
    router = _product(shape.split_tokens, hidden, part.experts)
    local = part.experts / shape.ep
    rows = shape.routed_tokens(part) / local
    inside = part.latent_dim or hidden
    pair = _feed_forward(rows, inside, part.width / shape.etp, part.is_gated, local)
    grouped = [
        Matmul(rows=m.rows, inner=m.inner, outer=m.outer, count=m.count, is_grouped=True) for m in pair
    ]
    shared = part.shared_width / shape.tp
    extra = _feed_forward(shape.tokens, hidden, shared, part.is_gated) if part.shared_width else []
    latent = [
        _product(shape.split_tokens, hidden, part.latent_dim),
        _product(shape.split_tokens, part.latent_dim, hidden),
    ]
    return [router, *(latent if part.latent_dim else []), *grouped, *extra]


def _convolution(part: Convolution, shape: Shape) -> Matmul:
    rows = shape.samples * part.output_pixels
    inner = part.taps * part.inputs / part.groups
    ones = np.ones_like(rows)
    return Matmul(rows=rows, inner=ones * inner, outer=ones * part.outputs, count=ones, convolution=part)


def _traced(given: Product, shape: Shape) -> Matmul:
    """A product that a trace found: rows or count * samples, as they were seen to grow."""
    ones = np.ones_like(shape.samples)
    rows = given.rows * (shape.samples if given.grows is Grows.ROWS else ones)
    count = given.count * (shape.samples if given.grows is Grows.COUNT else ones)
    return Matmul(
        rows=rows,
        inner=ones * given.inner,
        outer=ones * given.outer,
        count=count,
        is_grouped=given.is_grouped,
        convolution=_seen_convolution(given) if given.channels else None,
    )


def _seen_convolution(given: Product) -> Convolution:
    """What the speed of a convolution depends on: channels in and out, groups."""
    outputs, pixels = round(given.outer), round(given.rows)
    return Convolution(
        inputs=given.channels, outputs=outputs, kernel=1, groups=given.groups, output_pixels=pixels
    )


def _attended(given: Attended, shape: Shape) -> Core:
    """An attention kernel that a trace found; a causal query sees half of the keys on average."""
    keys = float(given.keys)
    return Core(
        queries=shape.samples * given.queries,
        heads=np.full_like(shape.samples, given.heads),
        batches=given.heads * shape.samples,
        keys=(keys + 1.0) / 2.0 if given.is_causal else keys,
        all_keys=keys,
        block_keys=np.full_like(shape.samples, keys),
        width=float(given.head_dim + given.value_head_dim),
        is_aligned=given.head_dim % 8 == 0,
    )


def _core(part: Attention, shape: Shape) -> Core:
    length = part.source_tokens or shape.sequence_tokens
    window = np.minimum(length, part.window_tokens or part.top_tokens or length)
    all_keys = window + seen_pooled_keys(part, length)
    return Core(
        queries=shape.tokens,
        heads=part.heads / shape.tp,
        batches=part.heads / shape.tp * shape.samples,
        keys=mean_keys(part, length),
        all_keys=all_keys,
        block_keys=np.maximum(all_keys / shape.ring_ranks, 1.0),
        width=core_width(part),
        is_aligned=part.head_dim % 8 == 0,
    )


def _index_core(part: Attention, shape: Shape) -> list[Core]:
    """Scores of an indexer: every query against all keys before it, on every tensor rank whole."""
    if part.index_heads == 0:
        return []
    keys, all_keys = indexed_keys(part, shape.sequence_tokens)
    ones = np.ones_like(shape.tp)
    return [
        Core(
            queries=shape.tokens,
            heads=part.index_heads * ones,
            batches=part.index_heads * shape.samples,
            keys=keys,
            all_keys=all_keys,
            block_keys=np.maximum(all_keys / shape.ring_ranks, 1.0),
            width=part.index_dim,
            is_aligned=part.index_dim % 8 == 0,
            is_forward_only=True,
        )
    ]


def mean_keys(part: Attention, length: F64 | float) -> F64 | float:
    """Keys that a query sees on average: length, half of it when causal, at most the window.

    Causal with window w on length s: w - w (w - 1) / (2 s) for w <= s, the exact mean of min(i, w).
    Chunks of w tokens attend inside themselves: (s // w) chunks of w keys, the rest in its own; half of them
    when causal. Sparse attention sees the `top_tokens` it selects; pooled keys come to a window.
    Source: counting.
    """
    if part.kind is AttentionKind.CHUNKED:
        return _chunk_keys(part.window_tokens or length, length, part.is_causal)
    window = np.minimum(length, part.window_tokens or part.top_tokens or length)
    seen = window - window * (window - 1) / (2 * length) if part.is_causal else window
    return seen + mean_pooled_keys(part, length)


def _chunk_keys(chunk: F64 | float, length: F64 | float, is_causal: bool) -> F64 | float:
    whole, rest = np.divmod(length, chunk)
    own = 1.0 if is_causal else 0.0
    return sum(n * tokens * (tokens + own) for n, tokens in ((whole, chunk), (1, rest))) / (1 + own) / length
