"""A network as runs of layers, each layer of a named kind. Knows shapes; knows neither hardware nor plans.

A Network is a tuple of stacks (text decoder, encoder, vision tower, convolutions). A Stack is a row of
layers over one stream of tokens; `pattern` says which block kind stands at which layer, so that sliding
and full attention, dense and mixture-of-experts layers can alternate. A Block is a tuple of parts.
Shapes only: what a part costs is in `work`, `activations`, `parameters` and `mixers`.
"""

from dataclasses import dataclass
from enum import StrEnum

from escala.model.traces import Traced


class AttentionKind(StrEnum):
    """Which tokens attend to which."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    CROSS = "cross"
    SPARSE = "sparse"
    POOLED = "pooled"


class Scan(StrEnum):
    """How a recurrent mixer updates its state: what decays, and whether a value replaces or adds.

    `selective` is Mamba (a decay for each channel and state), `state-space` Mamba-2 (one for each head and
    token), `delta` the gated delta rule (one for each head and token; a value replaces what its key held),
    `channel-delta` the same with a decay for each channel (Kimi), `lightning` a fixed decay for each head.
    """

    SELECTIVE = "selective"
    STATE_SPACE = "state-space"
    DELTA = "delta"
    CHANNEL_DELTA = "channel-delta"
    LIGHTNING = "lightning"


class Learning(StrEnum):
    """What backward does in a layer: trains weights; frozen, passes gradients on; frozen, does nothing."""

    TRAINED = "trained"
    PASSED = "passed"
    STILL = "still"


class StackRole(StrEnum):
    """What stream of tokens a stack reads."""

    DECODER = "decoder"
    ENCODER = "encoder"
    VISION = "vision"
    AUDIO = "audio"
    PROJECTOR = "projector"
    CONVOLUTION = "convolution"
    MODULE = "module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention with grouped heads, or latent (MLA) when `kv_rank` is set.

    `window_tokens` limits the keys a query sees (sliding), or is the stretch of tokens that attends to itself
    alone (chunked). `top_tokens` are the keys that sparse attention selects by an indexer of `index_heads`
    queries and one key, each `index_dim` wide; without heads of its own it takes the selection of a layer
    before. `pooled_tokens` neighbours are pooled into one key, seen beside the window: all, or the selected.
    `gate_dim` is the width of an output gate for each head. Cross attention reads `source_tokens` of another
    stream, as many as its own when None. `key_value_maps` are 2, 1 where the keys serve as values (one tensor
    of both when `is_shared`), 0 where both are those of an earlier layer. With `output_groups` the outputs of
    so many groups of heads go through a map to `output_rank` each, before one map of all. `has_fused_maps`
    says that eager code makes queries, keys and values by one map, whose output lives on as the values do.
    `other_parameters` counts small replicated
    weights (query and key norms, sinks, relative position tables).
    """

    kind: AttentionKind = AttentionKind.FULL
    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    is_causal: bool = True
    window_tokens: int | None = None
    top_tokens: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    pooled_tokens: int = 0
    gate_dim: int = 0
    source_tokens: int | None = None
    key_value_maps: int = 2
    is_shared: bool = False
    output_groups: int = 0
    output_rank: int = 0
    query_rank: int = 0
    kv_rank: int = 0
    rope_head_dim: int = 0
    has_qkv_bias: bool = False
    has_key_bias: bool = True
    has_output_bias: bool = False
    has_qk_norm: bool = False
    has_value_norm: bool = False
    has_fused_maps: bool = False
    other_parameters: int = 0
    name: str = "attention"

    @property
    def key_value_width(self) -> int:
        """Numbers that one token has as keys and values of all key-value heads."""
        return self.kv_heads * (self.head_dim + (0 if self.is_shared else self.value_head_dim))

    @property
    def series(self) -> int:
        """Series that pooling mixes: two where keys are selected, of a window and of the one before it."""
        return 2 if self.index_heads else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """Mixing of tokens through a state of fixed size: key_dim x value_dim numbers for each head.

    `key_heads` share keys and queries (B and C of Mamba), `heads` have values, decays and states. A selective
    scan has a head for each channel, one key head and a map of `decay_rank` for its step sizes. `taps` are
    those of the causal convolution before the scan. `gate_rank` and `decay_rank` 0 are
    full maps. `norm_dim` counts the weights of the norm at the output: one head or all values.
    """

    scan: Scan
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    taps: int = 0
    chunk_tokens: int = 64
    gate_rank: int = 0
    decay_rank: int = 0
    norm_dim: int = 0
    has_bias: bool = False
    has_output_bias: bool = False
    has_convolution_bias: bool = False
    name: str = "mixer"

    @property
    def keys(self) -> int:
        """Width of all keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all values of a token."""
        return self.heads * self.value_dim

    @property
    def mixed(self) -> int:
        """Width that the convolution runs over: queries, keys and values; of a selective scan the values."""
        return self.values if self.scan is Scan.SELECTIVE else 2 * self.keys + self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """Two linear maps with an activation between; three when gated (SwiGLU, GeGLU).

    `activation_passes` are memory passes over the width, both ways, beyond those of one kernel: what
    eager code adds that makes the activation of several operations.
    """

    width: int
    is_gated: bool = True
    has_bias: bool = False
    activation_passes: float = 0.0
    name: str = "feed-forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A router and `experts` feed-forward maps of which each token uses `top_k`, plus shared ones.

    `shared_width` is the total width of the experts that every token uses; `capacity_factor` None means
    dropless, else each expert takes at most so many times its mean share, in buffers of that size
    (`is_padded`) or as routed. `load_deviation` is the standard deviation of the loads of experts over their
    mean, None where only the assumption is known; `loads` are measured ones. `latent_dim` is the width that
    routed experts read and write, between two maps; 0 is the hidden width. `has_wide_router` says that the
    router casts its input to fp32, `is_clamped` that gate and up are clamped. `other_parameters` counts
    router biases and gates of the shared expert.
    """

    experts: int
    top_k: int
    width: int
    is_gated: bool = True
    has_bias: bool = False
    shared_width: int = 0
    latent_dim: int = 0
    is_clamped: bool = False
    capacity_factor: float | None = None
    is_padded: bool = True
    load_deviation: float | None = None
    loads: tuple[float, ...] = ()
    has_wide_router: bool = False
    other_parameters: int = 0
    name: str = "experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution with its norm; `output_pixels` is the area that it writes for one image.

    `kept_outputs` are the tensors of its output that backward needs: of the kernel and of the norm, and more
    where the activation keeps its input (SiLU) or a rescaling its factors. A kernel covers `kernel` ** `dims`
    positions: 2 for images, 1 for sound. `is_squeezed` says that squeeze-and-excitation rescales its output,
    `pooled_pixels` is the area that a max-pool behind it writes.
    """

    inputs: int
    outputs: int
    kernel: int
    groups: int = 1
    output_pixels: int
    has_bias: bool = False
    norm_parameters: int = 0
    is_squeezed: bool = False
    pooled_pixels: int = 0
    dims: int = 2
    kept_outputs: int = 2
    name: str = "convolution"

    @property
    def taps(self) -> int:
        """Positions that the kernel covers."""
        return int(self.kernel**self.dims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear map over the tokens of the stack (projectors, channel mixing)."""

    inputs: int
    outputs: int
    has_bias: bool = True
    other_parameters: int = 0
    name: str = "linear"


Part = Attention | Mixer | FeedForward | Experts | Convolution | Linear | Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One kind of layer: its parts in order, and its norms over the hidden width.

    `norms` counts normalisations of the hidden stream, `norm_weights` the parameter vectors of each
    (1 for RMSNorm, 2 for LayerNorm with bias). `has_wide_norms` says that eager code multiplies by the weight
    in fp32 (Gemma 4). `streams` residual streams are mixed around every part (hyper-connections), by a matrix
    whose rows and columns are normed in `mixing_rounds`.
    """

    name: str
    parts: tuple[Part, ...]
    norms: int = 2
    norm_weights: int = 1
    has_wide_norms: bool = False
    is_parallel: bool = False
    streams: int = 1
    mixing_rounds: int = 0
    learning: Learning = Learning.TRAINED
    other_parameters: int = 0

    @property
    def sublayers(self) -> int:
        """Parts that write to the residual stream, each behind a connection of its own."""
        return sum(isinstance(part, (Attention, Mixer, FeedForward, Experts)) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """What turns inputs into the first hidden state: a table, patches, positions.

    `patch_inputs` is channels x patch x patch for images; `width` differs from the hidden width only when
    the embedding is factorised. `further_table_parameters` are those of a second table of the vocabulary,
    which feeds every layer.
    """

    vocab: int = 0
    positions: int = 0
    types: int = 0
    patch_inputs: int = 0
    width: int | None = None
    further_table_parameters: int = 0
    is_frozen: bool = False
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What turns the last hidden state into outputs: a vocabulary, classes, or nothing but a pooler.

    `outputs` is 0 for a bare encoder. A tied head owns no weight. `other_parameters` counts final
    transforms and poolers; `is_per_token` is false when one output is made for a whole sequence or image.
    `predictions` counts how often it is applied: once, and once more for each further token predicted.
    """

    outputs: int
    is_tied: bool = False
    has_bias: bool = False
    is_per_token: bool = True
    predictions: int = 1
    is_frozen: bool = False
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How a tower cuts images: patches of `patch_pixels` a side, `side_patches` a side for one token.

    Sides become multiples of both together, the nearest ones or (`rounds_up`) the next; an image is scaled
    into `least_pixels` to `most_pixels`, and down to `most_side_pixels`. With `tile_pixels` it is cut into up
    to `most_tiles` tiles of that side and one of the whole. `spare_tokens` are class tokens of each stream.
    """

    patch_pixels: int
    side_patches: int = 1
    rounds_up: bool = False
    least_pixels: int | None = None
    most_pixels: int | None = None
    most_side_pixels: int | None = None
    tile_pixels: int | None = None
    most_tiles: int = 1
    spare_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A row of layers over one stream of tokens.

    `tokens` is the length of the stream when the network fixes it (image patches, pixels); None means the
    sequence length of the workload. `streams_per_sample` belong to one sample: images or tiles, 0 when it has
    none; `grid` says how many tokens an image of another size makes, see `images`. `pattern[i]` is the index
    in `blocks` of the kind of layer i. `shared_embedding` marks an embedding that another stack owns (T5
    decoder). `is_frozen` is said of what it owns beside layers, embedding and head: its final norm. `outside`
    is what a traced module does before, between and after its layers, loss included.
    """

    role: StackRole
    hidden: int
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]
    tokens: int | None = None
    streams_per_sample: int = 1
    grid: Grid | None = None
    embedding: Embedding | None = None
    head: Head | None = None
    final_norm_weights: int = 1
    is_frozen: bool = False
    other_parameters: int = 0
    outside: Block | None = None

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.pattern)

    @property
    def streams(self) -> int:
        """Residual streams between layers: one, or as many as the layers mix."""
        return max((block.streams for block in self.blocks), default=1)

    def count(self, kind: int) -> int:
        """How many layers are of this block kind."""
        return self.pattern.count(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network: its stacks from input to output, its name, its family and where the shape was read.

    `traced_tokens` is the only sequence length that the numbers of a traced module hold for.
    """

    name: str
    family: str
    stacks: tuple[Stack, ...]
    source: str = "given by the user"
    max_tokens: int | None = None
    stored_bits: float = 16.0
    wrapped_class: str | None = None
    traced_tokens: int | None = None

    @property
    def is_traced(self) -> bool:
        """True when its numbers were found by running a module, of whose parts nothing else is known."""
        return any(stack.role is StackRole.MODULE for stack in self.stacks)

    @property
    def layers(self) -> int:
        """Layers of all stacks together."""
        return sum(stack.layers for stack in self.stacks)

    @property
    def main(self) -> Stack:
        """The stack that carries the head: what a language model or classifier is known by."""
        return self.stacks[-1]

    @property
    def is_image(self) -> bool:
        """True when one sample is one image of fixed size, so that no sequence length applies."""
        return all(stack.tokens is not None for stack in self.stacks)
