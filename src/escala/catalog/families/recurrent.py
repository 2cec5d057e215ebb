"""Decoders with recurrent mixers: state spaces alone, or mixed with attention. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from collections.abc import Iterable
from dataclasses import replace

from escala.catalog.families.config import Config
from escala.catalog.families.layers import (
    decoder,
    gated_feed_forward,
    grouped_attention,
    repeated,
    with_head_norms,
)
from escala.catalog.families.moe import bailing_experts, latent_attention, routed
from escala.model.network import Attention, Block, Experts, FeedForward, Mixer, Part, Scan, Stack

NEMOTRON_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
OLD_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}
MIXED_KINDS = ("linear_attention", "full_attention")
DELTA_CHUNK = 64  # tokens of a chunk in the kernels of flash-linear-attention


def mamba(config: Config) -> tuple[Stack, ...]:
    """Mamba: a selective scan in every layer, with one norm; tied vocabulary."""
    hidden = config.count("hidden_size")
    inner = int(hidden * config.positive("expand", 2))
    step = config.keys.get("time_step_rank", "auto")
    has_bias = config.flag("use_bias")
    mixer = Mixer(
        scan=Scan.SELECTIVE,
        heads=inner,
        key_heads=1,
        key_dim=config.count("state_size", 16),
        value_dim=1,
        taps=config.count("conv_kernel", 4),
        decay_rank=-(-hidden // 16) if step == "auto" else config.count("time_step_rank"),
        has_bias=has_bias,
        has_output_bias=has_bias,
        has_convolution_bias=config.flag("use_conv_bias", True),
    )
    block = Block(name="selective scan", parts=(mixer,), norms=1)
    return (decoder(config, repeated(config, block), is_tied=True),)


def mamba2(config: Config) -> tuple[Stack, ...]:
    """Mamba-2: a state space of heads in every layer, with one norm."""
    keys = {"num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8, "chunk_size": 256}
    mixer = _state_space(replace(config, keys={**keys, **config.keys}), has_bias=config.flag("use_bias"))
    inner = int(config.count("hidden_size") * config.positive("expand", 2))
    if mixer.values != inner:
        raise config.refuse("num_heads", mixer.heads, f"heads that with head_dim make {inner} channels")
    return (decoder(config, repeated(config, Block(name="state space", parts=(mixer,), norms=1))),)


def nemotron_h(config: Config) -> tuple[Stack, ...]:
    """Nemotron-H: layers of one part each, a state space, attention, feed-forward or experts."""
    old = {"num_heads": "mamba_num_heads", "head_dim": "mamba_head_dim", "state_size": "ssm_state_size"}
    keys = {"num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8, "chunk_size": 128}
    own = {name: config.keys[key] for name, key in old.items() if config.has(key)}
    inside = {key: value for key, value in config.keys.items() if key not in ("num_heads", "head_dim")}
    mixer = _state_space(replace(config, keys={**keys, **inside, **own}), has_bias=config.flag("use_bias"))
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    attention = grouped_attention(replace(config, keys={**heads, **config.keys}), head_dim=128)
    has_bias = config.flag("mlp_bias")
    feed = FeedForward(width=config.count("intermediate_size", 21_504), is_gated=False, has_bias=has_bias)
    kinds: dict[str, tuple[str, tuple[Part, ...]]] = {
        "linear_attention": ("state space", (mixer,)),
        "full_attention": ("attention", (attention,)),
        "mlp": ("feed-forward", (feed,)),
    }
    layers = _nemotron_layers(config)
    if "moe" in layers:
        kinds["moe"] = ("experts", (_nemotron_experts(config, has_bias=has_bias),))
    return (decoder(config, [Block(name=n, parts=p, norms=1) for n, p in (kinds[each] for each in layers)]),)


def falcon_h1(config: Config) -> tuple[Stack, ...]:
    """Falcon-H1: attention and a state space side by side in every layer, then a gated feed-forward."""
    heads = config.count("mamba_n_heads", 128)
    inner = _falcon_inner(config)
    dim = config.keys.get("mamba_d_head", "auto")
    if inner % heads or dim not in ("auto", None, inner // heads):
        raise config.refuse("mamba_n_heads", heads, f"heads that with mamba_d_head make {inner} channels")
    groups = config.count("mamba_n_groups", 1)
    mixer = Mixer(
        scan=Scan.STATE_SPACE,
        heads=heads,
        key_heads=groups,
        key_dim=config.count("mamba_d_state", 256),
        value_dim=inner // heads,
        taps=config.count("mamba_d_conv", 4),
        chunk_tokens=config.count("mamba_chunk_size", 256),
        norm_dim=inner if config.flag("mamba_rms_norm") else 0,
        has_bias=config.flag("mamba_proj_bias"),
        has_output_bias=config.flag("projectors_bias"),
        has_convolution_bias=config.flag("mamba_conv_bias", True),
    )
    given = replace(config, keys={"num_attention_heads": 32, "num_key_value_heads": 8, **config.keys})
    attention = grouped_attention(given, has_bias=config.flag("attention_bias"))
    feed_forward = gated_feed_forward(config, has_bias=config.flag("mlp_bias"))
    block = Block(name="attention beside state space", parts=(mixer, attention, feed_forward))
    return (decoder(config, repeated(config, block)),)


def qwen3_next(config: Config) -> tuple[Stack, ...]:
    """Qwen3-Next: three layers of gated delta rule to one of gated attention; experts with a shared one."""
    routed_experts = qwen_experts(config, experts=512, top_k=10)
    dense = FeedForward(width=config.count("intermediate_size", 5632))
    step, kept = config.count("decoder_sparse_step", 1), set(config.counts("mlp_only_layers", (), least=0))
    feeds: list[Part] = [
        routed_experts if (i + 1) % step == 0 and i not in kept else dense
        for i in range(config.count("num_hidden_layers", 48))
    ]
    return (qwen_decoder(config, feeds, kv_heads=2),)


def qwen3_5_text(config: Config) -> tuple[Stack, ...]:
    """Qwen3.5, text: three layers of gated delta rule to one of gated attention; gated feed-forward."""
    feed = FeedForward(width=config.count("intermediate_size", 12_288))
    return (qwen_decoder(config, [feed] * config.count("num_hidden_layers", 32), kv_heads=4),)


def qwen3_5_moe_text(config: Config) -> tuple[Stack, ...]:
    """Qwen3.5 with experts, text: as Qwen3-Next, experts in every layer."""
    experts = qwen_experts(config, experts=256, top_k=8)
    return (qwen_decoder(config, [experts] * config.count("num_hidden_layers", 40), kv_heads=2),)


def minimax(config: Config) -> tuple[Stack, ...]:
    """MiniMax-Text: lightning attention where layer_types says so, experts as wide as intermediate_size."""
    attention = grouped_attention(config, kv_heads=8)
    heads, dim = attention.heads, attention.head_dim
    mixer = Mixer(
        scan=Scan.LIGHTNING,
        heads=heads,
        key_heads=heads,
        key_dim=dim,
        value_dim=dim,
        chunk_tokens=config.count("block_size", 256),
        norm_dim=heads * dim,
    )
    experts = routed(config, config.count("intermediate_size", 14_336), experts=8, top_k=2)
    count = config.count("num_hidden_layers", 32)
    kinds = mixed_kinds(config, [MIXED_KINDS[(i + 1) % 2] for i in range(count)])
    return (decoder(config, _mixed(kinds, mixer, attention, [experts] * count, "lightning attention")),)


def kimi_linear(config: Config) -> tuple[Stack, ...]:
    """Kimi Linear: three layers of delta rule with channel decays to one of latent attention; experts."""
    count = config.count("num_hidden_layers", 27)
    own = config.table("linear_attn_config") if config.has("linear_attn_config") else config
    heads = own.count("linear_num_heads" if own is config else "num_heads", 32)
    dim = own.count("linear_head_dim" if own is config else "head_dim", 128)
    taps = own.count("linear_conv_kernel_dim" if own is config else "short_conv_kernel_size", 4)
    mixer = _channel_delta(heads, dim, taps, rank=dim)
    default = [MIXED_KINDS[bool(i) and i % 4 == 0] for i in range(count)]
    if own is not config and own.has("full_attn_layers"):
        full = set(own.counts("full_attn_layers"))  # counted from 1 in the published file
        default = [MIXED_KINDS[i + 1 in full] for i in range(count)]
    experts = _deepseek_experts(config, width=1024, experts=256)
    attention = latent_attention(replace(config, keys={"q_lora_rank": None, **config.keys}))
    feeds = dense_first(config, experts, count, dense=1, width=9216)
    return (decoder(config, _mixed(mixed_kinds(config, default), mixer, attention, feeds, "delta rule")),)


def bailing_hybrid(config: Config) -> tuple[Stack, ...]:
    """Ling 3: five layers of delta rule with channel decays to one of gated latent attention; experts.

    Ling 2.5 and 2.6 have the same model_type and are told by their class.
    """
    if "BailingMoeV2_5ForCausalLM" in config.words("architectures"):
        return _lightning_hybrid(config)
    if any(name.startswith("BailingMoeV2") for name in config.words("architectures")):
        raise config.refuse("architectures", config.words("architectures")[0], "BailingHybridForCausalLM")
    count, group = config.count("num_hidden_layers", 42), config.count("layer_group_size", 6)
    heads = config.count("num_attention_heads", 32)
    taps = config.count("short_conv_kernel_size", 4)
    dim = config.count("linear_head_dim", config.count("head_dim", 128))
    mixer = _channel_delta(heads, dim, taps, rank=0)
    given = replace(config, keys={"q_lora_rank": None, "num_attention_heads": 32, **config.keys})
    attention = replace(latent_attention(given), gate_dim=1)
    default = [MIXED_KINDS[(i + 1) % group == 0] for i in range(count)]
    experts = _deepseek_experts(config, width=768, experts=512)
    feeds = dense_first(config, experts, count, dense=2, width=6144)
    return (decoder(config, _mixed(mixed_kinds(config, default), mixer, attention, feeds, "delta rule")),)


def _lightning_hybrid(config: Config) -> tuple[Stack, ...]:
    """Ling 2.5: seven layers of lightning attention to one of latent attention; experts.

    The layers of an unfilled group have latent attention. Lightning layers norm queries and keys of each
    head. Source: vLLM, bailing_moe_linear.py.
    """
    for key in ("use_bias", "use_qkv_bias"):
        if config.flag(key):
            raise config.refuse(key, True, "false, which published files have")
    count, group = config.count("num_hidden_layers"), config.count("layer_group_size")
    heads, dim = config.count("num_attention_heads"), config.count("head_dim")
    mixer = Mixer(
        scan=Scan.LIGHTNING,
        heads=heads,
        key_heads=heads,
        key_dim=dim,
        value_dim=dim,
        chunk_tokens=DELTA_CHUNK,
        norm_dim=heads * dim,
    )
    full = [(i + 1) % group == 0 or i >= count - count % group for i in range(count)]
    attention = latent_attention(replace(config, keys={"q_lora_rank": None, **config.keys}))
    feeds = dense_first(
        config, bailing_experts(config), count, dense=1, width=config.count("intermediate_size")
    )
    norms = 2 * dim * config.flag("use_qk_norm")
    blocks = _mixed([MIXED_KINDS[each] for each in full], mixer, attention, feeds, "lightning attention")
    normed = [replace(b, other_parameters=norms) if b.parts[0] is mixer else b for b in blocks]
    return (decoder(config, normed),)


def qwen_decoder(config: Config, feeds: list[Part], *, kv_heads: int) -> Stack:
    """The decoder of the Qwen families that mix gated delta rules with gated attention."""
    every = config.count("full_attention_interval", 4)
    default = [MIXED_KINDS[(i + 1) % every == 0] for i in range(len(feeds))]
    key_dim, value_dim = config.count("linear_key_head_dim", 128), config.count("linear_value_head_dim", 128)
    heads, key_heads = config.count("linear_num_value_heads", 32), config.count("linear_num_key_heads", 16)
    if heads % key_heads:
        raise config.refuse("linear_num_key_heads", key_heads, f"a divisor of the {heads} value heads")
    mixer = Mixer(
        scan=Scan.DELTA,
        heads=heads,
        key_heads=key_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        taps=config.count("linear_conv_kernel_dim", 4),
        chunk_tokens=DELTA_CHUNK,
        norm_dim=value_dim,
    )
    given = replace(config, keys={"num_attention_heads": 16, **config.keys})
    has_bias = config.flag("attention_bias")
    attention = with_head_norms(grouped_attention(given, kv_heads=kv_heads, head_dim=256, has_bias=has_bias))
    attention = replace(attention, gate_dim=attention.head_dim)
    return decoder(config, _mixed(mixed_kinds(config, default), mixer, attention, feeds, "delta rule"))


def qwen_experts(config: Config, *, experts: int, top_k: int) -> Experts:
    """Routed experts and one gated shared expert; the arguments are family defaults."""
    return replace(
        routed(config, config.count("moe_intermediate_size", 512), experts=experts, top_k=top_k),
        shared_width=config.count("shared_expert_intermediate_size", 512),
        other_parameters=config.count("hidden_size"),
    )


def mixed_kinds(config: Config, default: list[str]) -> list[str]:
    """Kind of each layer: by layer_types when the config lists them, else by the rule of the family."""
    kinds = config.words("layer_types")
    if kinds and len(kinds) != len(default):
        raise config.refuse(
            "layer_types", f"{len(kinds)} kinds", f"one kind for each of {len(default)} layers"
        )
    for kind in kinds:
        if kind not in MIXED_KINDS:
            raise config.refuse("layer_types", kind, " or ".join(MIXED_KINDS) + " in this family")
    return list(kinds) or default


def dense_first(config: Config, experts: Experts, count: int, *, dense: int, width: int) -> list[Part]:
    """Gated feed-forwards first, then experts: by mlp_layer_types, else first_k_dense_replace."""
    feed = FeedForward(width=config.count("intermediate_size", width))
    kinds = config.words("mlp_layer_types")
    if not kinds:
        first = min(count, config.count("first_k_dense_replace", dense, least=0))
        kinds = ("dense",) * first + ("sparse",) * (count - first)
    if len(kinds) != count or set(kinds) - {"dense", "sparse"}:
        raise config.refuse("mlp_layer_types", list(kinds)[:3], f"dense or sparse for each of {count} layers")
    return [feed if kind == "dense" else experts for kind in kinds]


def _mixed(
    kinds: Iterable[str], mixer: Mixer, attention: Attention, feeds: list[Part], name: str
) -> list[Block]:
    blocks = []
    for kind, feed in zip(kinds, feeds, strict=True):
        first: Part = mixer if kind == "linear_attention" else attention
        word = name if first is mixer else "attention"
        rest = "experts" if isinstance(feed, Experts) else "dense"
        blocks.append(Block(name=f"{word}, {rest}", parts=(first, feed)))
    return blocks


def _state_space(config: Config, *, has_bias: bool) -> Mixer:
    heads, dim = config.count("num_heads"), config.count("head_dim")
    groups = config.count("n_groups")
    if heads % groups:
        raise config.refuse("n_groups", groups, f"a divisor of the {heads} heads of the state space")
    return Mixer(
        scan=Scan.STATE_SPACE,
        heads=heads,
        key_heads=groups,
        key_dim=config.count("state_size"),
        value_dim=dim,
        taps=config.count("conv_kernel", 4),
        chunk_tokens=config.count("chunk_size"),
        norm_dim=heads * dim,
        has_bias=has_bias,
        has_output_bias=has_bias,
        has_convolution_bias=config.flag("use_conv_bias", True),
    )


def _falcon_inner(config: Config) -> int:
    """Channels of the state space: mamba_d_ssm, or where it is null expand * hidden."""
    if config.is_null("mamba_d_ssm"):
        return config.count("mamba_expand", 2) * config.count("hidden_size")
    return config.count("mamba_d_ssm", 1024)


def _nemotron_layers(config: Config) -> list[str]:
    """Kind of each layer: a list of words, a pattern of letters, or the default of the family."""
    listed = config.words("layers_block_type") or config.words("layer_types")
    kinds = [OLD_KINDS.get(kind, kind) for kind in listed]
    pattern = config.word("hybrid_override_pattern")
    if pattern and not kinds:
        kinds = [NEMOTRON_LETTERS.get(letter, letter) for letter in pattern]
    kinds = kinds or ["linear_attention", "moe", "full_attention", "mlp"]
    for kind in kinds:
        if kind not in NEMOTRON_LETTERS.values():
            allowed = ", ".join(NEMOTRON_LETTERS.values())
            raise config.refuse("layers_block_type", kind, f"{allowed}, or a pattern of M, E, * and -")
    return kinds


def _nemotron_experts(config: Config, *, has_bias: bool) -> Experts:
    width = config.count("moe_shared_expert_intermediate_size", 7688)
    hidden = config.count("hidden_size")
    experts = routed(config, config.count("moe_intermediate_size", 7688), experts=8, top_k=2)
    latent = config.maybe_count("moe_latent_size") or 0
    biases = has_bias * (width + hidden + (latent + hidden if latent else 0))
    return replace(experts, is_gated=False, shared_width=width, latent_dim=latent, other_parameters=biases)


def _channel_delta(heads: int, dim: int, taps: int, *, rank: int) -> Mixer:
    return Mixer(
        scan=Scan.CHANNEL_DELTA,
        heads=heads,
        key_heads=heads,
        key_dim=dim,
        value_dim=dim,
        taps=taps,
        chunk_tokens=DELTA_CHUNK,
        gate_rank=rank,
        decay_rank=rank,
        norm_dim=dim,
    )


def _deepseek_experts(config: Config, *, width: int, experts: int) -> Experts:
    found = routed(config, config.count("moe_intermediate_size", width), experts=experts, top_k=8)
    return replace(found, shared_width=config.count("n_shared_experts", 1, least=0) * found.width)
