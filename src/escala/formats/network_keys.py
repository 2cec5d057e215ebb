"""The keys of a network description: what may be written, and within which bounds. Builds nothing.

    schema = "escala/network@1"     # may be left out

    [network]                       # required: hidden, layers, heads and vocab
    name = "mine"
    hidden = 4096
    layers = 32
    heads = 32
    vocab = 128256

    [[blocks]]                      # layers that differ: any layer key, for these layers
    layers = [0, 1, 2]              # counted from 0; or every = 4 for layers 3, 7, 11, ...
    experts = 64
    top_k = 8
    expert_ffn = 1408

Later [[blocks]] win over earlier ones; `experts = 0` and `window = 0` switch off again.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

from escala.catalog.families.config import MOST_EXPERTS, MOST_HIDDEN, MOST_LAYERS, MOST_VOCAB

SCHEMA: Final = "escala/network@1"
NORM_WEIGHTS: Final = {"rms": 1, "layer": 2, "none": 0}

Width = Annotated[int, Meta(ge=1, le=MOST_HIDDEN)]
OrNone = Annotated[int, Meta(ge=0, le=2**30)]
Bits = Annotated[float, Meta(ge=1, le=64)]
Factor = Annotated[float, Meta(gt=0, le=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKeys:
    """Keys of a layer: [network] gives them for all layers, [[blocks]] for some.

    `kv_heads` 0 means as many as heads, `head_dim` 0 hidden / heads, `ffn` 0 four times hidden, `window` 0
    full attention. `bias` is on every linear map, `qkv_bias` on queries, keys and values only. `kv_rank`
    makes the attention latent, with `query_rank`, `rope_dim` (a part of head_dim) and `value_dim`.
    `experts` 0 is a dense layer; `expert_ffn` is the width of one routed expert, `shared_ffn` that of all
    shared ones together, `expert_stream` what experts read and write where that is not the hidden width.
    `capacity_factor` bounds the tokens of an expert, in `padded` buffers or as routed; `load_deviation` is
    the standard deviation of loads over their mean, `loads` are measured ones.
    `gate` is an output gate of attention. `select` keys are chosen by `index_heads` of `index_dim`.
    `scan` makes the layer a recurrent mixer of `scan_heads` (0: as heads), sharing `scan_key_heads` (0: as
    many), with a state of `state_dim` x `scan_dim`, chunks of `chunk` tokens and a convolution over `taps`.
    `parts` says what a layer is made of, where that is not attention (or mixer) and feed-forward.
    """

    heads: OrNone = 0
    kv_heads: OrNone = 0
    head_dim: OrNone = 0
    value_dim: OrNone = 0
    query_rank: OrNone = 0
    kv_rank: OrNone = 0
    rope_dim: OrNone = 0
    window: OrNone = 0
    ffn: OrNone = 0
    gated: bool = True
    bias: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    parallel: bool = False
    norms: Annotated[int, Meta(ge=0, le=16)] = 2
    experts: Annotated[int, Meta(ge=0, le=MOST_EXPERTS)] = 0
    top_k: Width = 1
    expert_ffn: OrNone = 0
    shared_ffn: OrNone = 0
    expert_stream: OrNone = 0
    gate: bool = False
    select: OrNone = 0
    index_heads: OrNone = 0
    index_dim: OrNone = 128
    scan: Literal["none", "state-space", "delta", "channel-delta", "lightning"] = "none"
    scan_heads: OrNone = 0
    scan_key_heads: OrNone = 0
    scan_dim: Width = 128
    state_dim: Width = 128
    chunk: Width = 64
    taps: OrNone = 4
    parts: tuple[Literal["attention", "mixer", "feed-forward"], ...] = ()
    capacity_factor: Factor | None = None
    padded: bool = True
    load_deviation: Annotated[float, Meta(ge=0, le=100)] | None = None
    loads: tuple[Annotated[float, Meta(ge=0, le=1e18)], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkKeys:
    """Keys of [network] besides those of its layers.

    `role` is decoder (causal) or encoder, `norm` is rms, layer or none, `positions` counts rows of a learned
    table, `context` is the longest sequence, `bits` the width of a stored weight, `wrap` the class that FSDP
    wraps. `tied` shares the vocabulary table with the head.
    """

    hidden: Width
    layers: Annotated[int, Meta(ge=1, le=MOST_LAYERS)]
    vocab: Annotated[int, Meta(ge=1, le=MOST_VOCAB)]
    name: str = ""
    role: Literal["decoder", "encoder"] = "decoder"
    norm: Literal["rms", "layer", "none"] = "rms"
    positions: OrNone = 0
    tied: bool = False
    context: Annotated[int, Meta(ge=1, le=2**30)] | None = None
    bits: Bits = 16.0
    wrap: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which layers a [[blocks]] table is about: a list, or every n-th with the last of each n."""

    layers: tuple[Annotated[int, Meta(ge=0, lt=MOST_LAYERS)], ...] = ()
    every: Annotated[int, Meta(ge=1, le=MOST_LAYERS)] | None = None
