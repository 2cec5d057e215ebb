"""A network as runs of layers, each layer of a named kind. Knows shapes; knows neither hardware nor plans.

A Network is a tuple of stacks (text decoder, encoder, vision tower, convolutions). A Stack is a row of
layers over one stream of tokens; `pattern` says which block kind stands at which layer, so that sliding
and full attention, dense and mixture-of-experts layers can alternate. A Block is a tuple of parts.
Shapes only: what a part costs is in `work`, `activations` and `parameters`.
"""

from dataclasses import dataclass
from enum import StrEnum


class AttentionKind(StrEnum):
    """Which tokens attend to which."""

    FULL = "full"
    SLIDING = "sliding"
    CROSS = "cross"
    LINEAR = "linear"
    SPARSE = "sparse"


class StackRole(StrEnum):
    """What stream of tokens a stack reads."""

    DECODER = "decoder"
    ENCODER = "encoder"
    VISION = "vision"
    PROJECTOR = "projector"
    CONVOLUTION = "convolution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention with grouped heads, or latent (MLA) when `kv_rank` is set.

    `window_tokens` limits the keys a query sees (sliding), `state_dim` is the state per head of linear
    attention, `top_tokens` the keys that sparse attention selects. `other_parameters` counts small
    replicated weights (query and key norms, sinks, relative position tables).
    """

    kind: AttentionKind = AttentionKind.FULL
    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    is_causal: bool = True
    window_tokens: int | None = None
    state_dim: int | None = None
    top_tokens: int | None = None
    query_rank: int = 0
    kv_rank: int = 0
    rope_head_dim: int = 0
    has_qkv_bias: bool = False
    has_key_bias: bool = True
    has_output_bias: bool = False
    has_qk_norm: bool = False
    other_parameters: int = 0
    name: str = "attention"


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
    dropless. `other_parameters` counts router biases and gates of the shared expert.
    """

    experts: int
    top_k: int
    width: int
    is_gated: bool = True
    has_bias: bool = False
    shared_width: int = 0
    capacity_factor: float | None = None
    other_parameters: int = 0
    name: str = "experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution with its norm; `output_pixels` is the area that it writes for one image.

    `is_squeezed` says that squeeze-and-excitation rescales its output, `pooled_pixels` is the area that a
    max-pool behind it writes.
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
    name: str = "convolution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear map over the tokens of the stack (projectors, channel mixing)."""

    inputs: int
    outputs: int
    has_bias: bool = True
    other_parameters: int = 0
    name: str = "linear"


Part = Attention | FeedForward | Experts | Convolution | Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One kind of layer: its parts in order, and its norms over the hidden width.

    `norms` counts normalisations of the hidden stream, `norm_weights` the parameter vectors of each
    (1 for RMSNorm, 2 for LayerNorm with bias).
    """

    name: str
    parts: tuple[Part, ...]
    norms: int = 2
    norm_weights: int = 1
    is_parallel: bool = False
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """What turns inputs into the first hidden state: a table, patches, positions.

    `patch_inputs` is channels x patch x patch for images; `width` differs from the hidden width only when
    the embedding is factorised.
    """

    vocab: int = 0
    positions: int = 0
    types: int = 0
    patch_inputs: int = 0
    width: int | None = None
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What turns the last hidden state into outputs: a vocabulary, classes, or nothing but a pooler.

    `outputs` is 0 for a bare encoder. A tied head owns no weight. `other_parameters` counts final
    transforms and poolers; `is_per_token` is false when one output is made for a whole sequence or image.
    """

    outputs: int
    is_tied: bool = False
    has_bias: bool = False
    is_per_token: bool = True
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A row of layers over one stream of tokens.

    `tokens` is the length of the stream when the network fixes it (image patches, pixels); None means the
    sequence length of the workload. `pattern[i]` is the index in `blocks` of the kind of layer i.
    `shared_embedding` marks an embedding that another stack owns (T5 decoder).
    """

    role: StackRole
    hidden: int
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]
    tokens: int | None = None
    embedding: Embedding | None = None
    head: Head | None = None
    final_norm_weights: int = 1
    other_parameters: int = 0

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.pattern)

    def count(self, kind: int) -> int:
        """How many layers are of this block kind."""
        return self.pattern.count(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network: its stacks from input to output, its name, its family and where the shape was read."""

    name: str
    family: str
    stacks: tuple[Stack, ...]
    source: str = "given by the user"
    max_tokens: int | None = None
    stored_bits: float = 16.0
    wrapped_class: str | None = None

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
