"""The model that arguments describe, in the words of a Hugging Face config.json, and arguments for a network.

Positions that are learned and norms with a bias beside a gated feed-forward are not in any family's words:
they are a few vectors and are left out.
"""

from collections.abc import Mapping
from typing import Final

from escala.foreign.megatron.arguments import Arguments
from escala.model.network import Attention, AttentionKind, Block, Experts, FeedForward, Network, StackRole

MOST_LAYERS: Final = 10_000
"""Layers up to which a network is built (catalog)."""
VOCABULARIES: Final[Mapping[str, int]] = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
"""Sizes of tokenizers that have one only (GPT-2's merges; Llama 2's model file)."""


def shape_of(given: Arguments) -> Mapping[str, object] | None:
    """Keys of a config.json; None where sizes are missing or no family has this kind of layer."""
    sizes = {
        name: given.count(name)
        for name in ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size")
    }
    layers, hidden, heads = (sizes[name] for name in ("num_layers", "hidden_size", "num_attention_heads"))
    if not (layers and hidden and heads) or not given.is_whole:
        return None
    gated = given.is_on("swiglu")
    width = sizes["ffn_hidden_size"] or (hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden)
    found: dict[str, object] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": width,
        "tie_word_embeddings": not given.is_on("untie_embeddings_and_output_weights"),
    }
    for name, key in (("max_position_embeddings", "max_position_embeddings"), ("kv_channels", "head_dim")):
        if (count := given.count(name)) is not None:
            found[key] = count
    if (vocabulary := padded_vocabulary(given)) is not None:
        found["vocab_size"] = vocabulary
    kind = _gated(given, width) if gated else _plain(given)
    return None if kind is None else {**found, **kind}


def padded_vocabulary(given: Arguments) -> int | None:
    """Rows of the embedding: the vocabulary, padded to a multiple of 128 * TP (or what is given for 128)."""
    padded = given.count("padded_vocab_size")
    size = given.count("vocab_size") or VOCABULARIES.get(given.word("tokenizer_type") or "")
    if padded or size is None or size < 1:
        return padded or size
    multiple = vocabulary_multiple(given)
    return -(-size // multiple) * multiple if multiple else None


def vocabulary_multiple(given: Arguments) -> int | None:
    """What the rows of the embedding are a multiple of."""
    if given.is_on("no_pad_vocab_size"):
        return 1
    each = given.count("make_vocab_size_divisible_by", 128)
    tp = given.count("tensor_model_parallel_size", 1)
    return each * tp if each and tp else None


def _plain(given: Arguments) -> dict[str, object] | None:
    """Two maps with GELU: GPT-2 with learned positions, GPT-NeoX with rotary ones; biases belong to both."""
    known = not any(
        given.is_on(name)
        for name in ("num_experts", "group_query_attention", "disable_bias_linear", "multi_latent_attention")
    )
    if not known or given.is_on("squared_relu") or given.is_on("quick_geglu"):
        return None
    position = given.word("position_embedding_type") or "learned_absolute"
    if position == "learned_absolute" and not given.is_on("use_rotary_position_embeddings"):
        return {"model_type": "gpt2", "activation_function": "gelu"}
    return {"model_type": "gpt_neox", "use_parallel_residual": False}


def _gated(given: Arguments, width: int) -> dict[str, object] | None:
    groups = given.count("num_query_groups") if given.is_on("group_query_attention") else None
    found: dict[str, object] = {"num_key_value_heads": groups or given.count("num_attention_heads")}
    biased = not given.is_on("disable_bias_linear")
    if given.is_on("multi_latent_attention"):
        return _latent(given, width)
    if given.count("num_experts"):
        return None if biased else {**found, **_experts(given, width)}
    if given.is_on("qk_layernorm"):
        return {**found, "model_type": "qwen3", "attention_bias": biased}
    if not biased and given.is_on("add_qkv_bias"):
        return {**found, "model_type": "qwen2"}
    return {**found, "model_type": "llama", "attention_bias": biased, "mlp_bias": biased}


def _experts(given: Arguments, width: int) -> dict[str, object]:
    shared = given.count("moe_shared_expert_intermediate_size")
    found: dict[str, object] = {
        "num_experts": given.count("num_experts"),
        "num_experts_per_tok": given.count("moe_router_topk", 2),
        "moe_intermediate_size": given.count("moe_ffn_hidden_size") or width,
        "mlp_only_layers": dense_layers(given),
    }
    if shared:
        return {
            **found,
            "model_type": "qwen2_moe",
            "shared_expert_intermediate_size": shared,
            "qkv_bias": given.is_on("add_qkv_bias"),
        }
    if given.is_on("qk_layernorm"):
        return {**found, "model_type": "qwen3_moe"}
    if found["mlp_only_layers"]:
        return {**found, "model_type": "qwen3_moe"}  # its head norms are two vectors a layer
    return {**found, "model_type": "mixtral", "intermediate_size": found["moe_intermediate_size"]}


def _latent(given: Arguments, width: int) -> dict[str, object] | None:
    dense, experts = dense_layers(given), given.count("num_experts")
    each = given.count("moe_ffn_hidden_size") or width
    shared = given.count("moe_shared_expert_intermediate_size", 0) or 0
    if experts is None or shared % each or dense != list(range(len(dense))):
        return None
    return {
        "model_type": "deepseek_v3",
        "n_routed_experts": experts,
        "num_experts_per_tok": given.count("moe_router_topk", 2),
        "moe_intermediate_size": each,
        "n_shared_experts": shared // each,
        "first_k_dense_replace": len(dense),
        "q_lora_rank": given.count("q_lora_rank"),
        "kv_lora_rank": given.count("kv_lora_rank", 32),
        "qk_nope_head_dim": given.count("qk_head_dim", 128),
        "qk_rope_head_dim": given.count("qk_pos_emb_head_dim", 64),
        "v_head_dim": given.count("v_head_dim", 128),
    }


def dense_layers(given: Arguments) -> list[int]:
    """Layers without experts: --moe-layer-freq is every n-th from the first on, or ([0]*3+[1]*58)."""
    layers = min(given.count("num_layers") or 0, MOST_LAYERS)
    every = given.count("moe_layer_freq", 1)
    if every is not None:
        return [i for i in range(layers) if every > 0 and i % every]
    pattern = _pattern(given.word("moe_layer_freq") or "")
    return [i for i, each in enumerate(pattern[:layers]) if not each]


def _pattern(text: str) -> list[int]:
    """The list that sums of repeated lists mean, without running them."""
    import re

    found: list[int] = []
    for digits, times in re.findall(r"\[([01](?:\s*,\s*[01])*)\](?:\s*\*\s*(\d{1,4}))?", text):
        found += [int(each) for each in digits.split(",")] * int(times or 1)
        if len(found) > MOST_LAYERS:
            break
    return found


def options_for(network: Network) -> dict[str, int | float | str | bool] | None:
    """Options that build a decoder of equal layers; None where Megatron's do not have such a layer."""
    if len(network.stacks) != 1 or len(set(network.main.pattern)) != 1:
        return None
    stack, block = network.main, network.main.blocks[network.main.pattern[0]]
    if stack.role is not StackRole.DECODER or len(block.parts) != 2 or block.is_parallel or block.norms != 2:
        return None
    attention, rest = block.parts
    if not isinstance(attention, Attention) or not isinstance(rest, FeedForward | Experts):
        return None
    if attention.kind is not AttentionKind.FULL or attention.kv_rank or attention.gate_dim:
        return None
    if not rest.is_gated or (isinstance(rest, Experts) and rest.latent_dim):
        return None
    assert stack.embedding is not None
    assert stack.head is not None
    found: dict[str, int | float | str | bool] = {
        "num-layers": stack.layers,
        "hidden-size": stack.hidden,
        "ffn-hidden-size": rest.width,
        "num-attention-heads": attention.heads,
        "kv-channels": attention.head_dim,
        "normalization": "RMSNorm" if block.norm_weights == 1 else "LayerNorm",
        "position-embedding-type": "rope",
        "swiglu": True,
        "untie-embeddings-and-output-weights": not stack.head.is_tied,
        "vocab-size": stack.embedding.vocab,
    }
    return {**found, **_heads(attention), **_biases(attention, block), **_routing(rest)}


def _heads(attention: Attention) -> dict[str, int | float | str | bool]:
    grouped = attention.kv_heads != attention.heads
    found: dict[str, int | float | str | bool] = {"qk-layernorm": attention.has_qk_norm}
    return (
        {**found, "group-query-attention": True, "num-query-groups": attention.kv_heads} if grouped else found
    )


def _biases(attention: Attention, block: Block) -> dict[str, int | float | str | bool]:
    biased = attention.has_output_bias
    return {"disable-bias-linear": not biased, "add-qkv-bias": attention.has_qkv_bias and not biased}


def _routing(rest: FeedForward | Experts) -> dict[str, int | float | str | bool]:
    if isinstance(rest, FeedForward):
        return {}
    found: dict[str, int | float | str | bool] = {
        "num-experts": rest.experts,
        "moe-router-topk": rest.top_k,
        "moe-ffn-hidden-size": rest.width,
        "moe-grouped-gemm": True,
        "moe-router-load-balancing-type": "aux_loss",
        "moe-aux-loss-coeff": 1e-2,
    }
    return {**found, "moe-shared-expert-intermediate-size": rest.shared_width} if rest.shared_width else found
