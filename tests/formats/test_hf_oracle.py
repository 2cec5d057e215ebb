"""The oracle: our count is that of the model which transformers builds on the meta device from the same keys.

Run with `make test-hf`. Compared with transformers 5.24.
"""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from escala.catalog import networks
from escala.catalog.families.compressed import POOLED, SELECTED
from escala.errors import InvalidInput
from escala.formats.hf import network_from_config
from escala.model.parameters import network_parameters

pytestmark = pytest.mark.optional

# What a config can say besides its sizes: (catalogued network, changes)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3.2-1b", {"attention_bias": True, "mlp_bias": True}),
    ("llama-3.2-1b", {"tie_word_embeddings": False}),
    ("llama-3.2-1b", {"architectures": ["LlamaModel"]}),
    ("llama-3.2-1b", {"architectures": ["LlamaForSequenceClassification"], "num_labels": 7}),
    ("llama-3.2-1b", {"architectures": ["LlamaForTokenClassification"], "num_labels": 7}),
    ("llama-3.2-1b", {"head_dim": 96, "num_key_value_heads": 4}),
    ("qwen3-0.6b", {"attention_bias": True}),
    ("qwen2.5-0.5b", {"use_sliding_window": True, "max_window_layers": 3}),
    ("qwen1.5-moe-a2.7b", {"decoder_sparse_step": 2, "mlp_only_layers": [3], "qkv_bias": False}),
    ("qwen3-30b-a3b", {"decoder_sparse_step": 3, "mlp_only_layers": [2, 5], "attention_bias": True}),
    ("deepseek-v2-lite", {"q_lora_rank": 96, "attention_bias": True, "n_shared_experts": 3}),
    ("deepseek-v3", {"q_lora_rank": None, "attention_bias": True, "num_hidden_layers": 5}),
    ("gpt-oss-20b", {"attention_bias": False}),
    ("gemma-2b", {"attention_bias": True}),
    ("gemma-2-2b", {"attention_bias": True, "tie_word_embeddings": False}),
    ("gemma-3-1b", {"attention_bias": True}),
    ("olmo-2-7b", {"attention_bias": True, "num_key_value_heads": 8}),
    ("glm-4-9b", {"attention_bias": False}),
    ("gpt2", {"n_inner": 1000, "tie_word_embeddings": False}),
    ("pythia-160m", {"attention_bias": False, "use_parallel_residual": False}),
    ("gpt-j-6b", {"n_inner": 1000}),
    ("opt-350m", {"do_layer_norm_before": True}),
    ("opt-125m", {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("falcon-7b", {"multi_query": False, "bias": True}),
    ("falcon-7b", {"parallel_attn": False, "alibi": True}),
    ("falcon-40b", {"num_ln_in_parallel_attn": 1}),
    ("falcon-180b", {"num_hidden_layers": 2, "alibi": True, "bias": True}),
    ("bloom-560m", {"n_layer": 3, "tie_word_embeddings": False}),
    ("opt-350m", {"word_embed_proj_dim": 1024, "num_hidden_layers": 2}),
    ("opt-350m", {"_remove_final_layer_norm": True, "do_layer_norm_before": True}),
    ("glm-4.5-air", {"use_qk_norm": True, "attention_bias": False, "n_shared_experts": 2}),
    ("minimax-m2", {"num_key_value_heads": 4, "num_hidden_layers": 3}),
    ("whisper-tiny", {"architectures": ["WhisperModel"], "decoder_layers": 2, "decoder_ffn_dim": 512}),
    ("whisper-tiny", {"num_mel_bins": 128, "decoder_attention_heads": 3, "tie_word_embeddings": False}),
    ("efficientnet-b0", {"architectures": ["EfficientNetModel"]}),
    ("efficientnet-b1", {"expand_ratios": [1, 4, 4, 4, 4, 4, 4], "squeeze_expansion_ratio": 0.5}),
    ("bert-base", {"architectures": ["BertModel"]}),
    ("bert-base", {"architectures": ["BertForPreTraining"]}),
    ("bert-base", {"architectures": ["BertForSequenceClassification"], "num_labels": 5}),
    ("bert-base", {"architectures": ["BertForTokenClassification"], "num_labels": 5}),
    ("bert-base", {"architectures": ["BertForQuestionAnswering"]}),
    ("roberta-base", {"architectures": ["RobertaModel"]}),
    ("roberta-base", {"architectures": ["RobertaForSequenceClassification"], "num_labels": 5}),
    ("roberta-base", {"architectures": ["RobertaForTokenClassification"], "num_labels": 5}),
    ("t5-small", {"architectures": ["T5Model"]}),
    ("t5-small", {"architectures": ["T5EncoderModel"]}),
    ("t5-small", {"num_decoder_layers": 2, "feed_forward_proj": "gated-gelu"}),
    ("vit-b/16", {"architectures": ["ViTModel"], "image_size": 384, "qkv_bias": False}),
    ("vit-b/16", {"num_labels": 3, "num_channels": 1}),
    ("resnet-50", {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}),
    ("resnet-50", {"downsample_in_first_stage": True, "downsample_in_bottleneck": True}),
    ("resnet-50", {"architectures": ["ResNetModel"]}),
    ("convnext-tiny", {"architectures": ["ConvNextModel"], "layer_scale_init_value": 0.0}),
    ("mamba-130m", {"use_bias": True, "use_conv_bias": False, "time_step_rank": 33}),
    ("mamba-130m", {"time_step_rank": "auto", "tie_word_embeddings": False}),
    ("mamba2-130m", {"use_bias": True, "use_conv_bias": False, "n_groups": 4}),
    ("qwen3-next-80b-a3b", {"num_hidden_layers": 4, "mlp_only_layers": [2], "attention_bias": True}),
    ("qwen3-next-80b-a3b", {"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]}),
    ("qwen3-next-80b-a3b", {"num_hidden_layers": 3, "decoder_sparse_step": 2, "linear_num_value_heads": 48}),
    ("falcon-h1-0.5b", {"mamba_rms_norm": True, "mamba_proj_bias": True}),
    ("falcon-h1-0.5b", {"projectors_bias": True, "mlp_bias": True, "attention_bias": True}),
    ("nemotron-h-8b", {"hybrid_override_pattern": "ME*-ME", "moe_latent_size": 512, "mlp_bias": True}),
    ("nemotron-h-8b", {"hybrid_override_pattern": "M*", "use_bias": True, "use_conv_bias": False}),
    ("deepseek-v3.2", {"num_hidden_layers": 4, "index_n_heads": 32, "attention_bias": True}),
    ("deepseek-v4-flash", {"num_hidden_layers": 5, "hc_mult": 3, "o_groups": 4, "index_head_dim": 64}),
    ("deepseek-v4-flash", {"num_hidden_layers": 4, "compress_ratios": None, "num_hash_layers": 1}),
    ("deepseek-v4-flash", {"num_hidden_layers": 5, "compress_rates": {SELECTED: 8, POOLED: 64}}),
    ("glm-5", {"num_hidden_layers": 8, "index_topk_freq": 4, "index_skip_topk_offset": 3}),
    ("glm-5", {"num_hidden_layers": 4, "index_topk_pattern": "FSSF"}),
    ("kimi-linear-48b-a3b", {"num_hidden_layers": 6, "linear_attn_config": {}, "q_lora_rank": 96}),
    ("ling-3.0-flash", {"num_hidden_layers": 4, "layer_group_size": 2, "q_lora_rank": 96}),
    ("minimax-text-01", {"num_hidden_layers": 3, "layer_types": None, "head_dim": 96}),
]

# The same of a nested table: (catalogued network, table, changes)
NESTED: list[tuple[str, str, dict[str, Any]]] = [
    ("qwen3-vl-2b", "vision_config", {"deepstack_visual_indexes": [3], "spatial_merge_size": 3}),
    ("qwen3-vl-30b-a3b", "text_config", {"decoder_sparse_step": 2, "mlp_only_layers": [1]}),
    ("mistral-small-3.1-24b", "vision_config", {"num_hidden_layers": 2}),
    ("llama-4-scout", "text_config", {"num_hidden_layers": 4, "moe_layers": [1, 2], "attention_bias": True}),
    ("llama-4-scout", "text_config", {"num_hidden_layers": 4, "interleave_moe_layer_step": 3}),
    ("gemma-4-e2b", "text_config", {"use_double_wide_mlp": False, "num_kv_shared_layers": 15}),
    ("gemma-4-e2b", "text_config", {"hidden_size_per_layer_input": 0, "attention_bias": True}),
    ("gemma-4-e2b", "audio_config", {"conv_kernel_size": 3, "num_hidden_layers": 2}),
    ("gemma-4-26b-a4b", "text_config", {"attention_k_eq_v": False, "num_hidden_layers": 7}),
    ("gemma-4-31b", "text_config", {"num_global_key_value_heads": 8, "num_hidden_layers": 12}),
]
SHAPES_OF = {"kimi_k2": "deepseek_v3"}
"""Families that are built as another one."""
ELSEWHERE = ("ling-2.6-flash", "ling-flash-2.0", "ling-mini-2.0")
"""Networks whose family transformers does not build."""
SHORTER: dict[str, dict[str, Any]] = {"deepseek-v4-flash": {"num_hidden_layers": 6}}
"""Networks that take long to build, with all kinds of their layers kept."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Warnings of the libraries are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch", reason="the oracle needs PyTorch")
        return pytest.importorskip("transformers", reason="the oracle needs transformers")


def built(transformers: Any, config: dict[str, Any]) -> Any:
    """The model of the class that `architectures` names, without storage."""
    import torch

    keys = copy.deepcopy(config)
    keys.pop("quantization_config", None)  # wraps modules, which changes no shape
    model_type = keys.pop("model_type")
    model_type = SHAPES_OF.get(model_type, model_type)
    labels = {"num_labels": keys.pop("num_labels")} if "num_labels" in keys else {}
    made = transformers.AutoConfig.for_model(model_type, **keys, **labels)
    with torch.device("meta"):
        return getattr(transformers, keys["architectures"][0])(made)


def counted(model: Any) -> int:
    return sum(weight.numel() for weight in model.parameters())


def ours(config: dict[str, Any]) -> int:
    return network_parameters(network_from_config(config, "mine", "test")).total


@pytest.mark.parametrize("name", [name for name in networks.names() if name not in ELSEWHERE])
def test_catalogued_network_counts_and_is_wrapped_as_in_transformers(transformers: Any, name: str):
    config = dict(networks.config(name))
    model = built(transformers, config)

    # transformers 5 ties the T5 head always; the published T5 1.1 and Flan-T5 own one, as their files say
    is_tied_anyway = config.get("tie_word_embeddings") is False and model.config.tie_word_embeddings
    untied = config["vocab_size"] * config["d_model"] if is_tied_anyway else 0
    assert ours(config) == counted(model) + untied
    assert networks.network(name).wrapped_class in {type(module).__name__ for module in model.modules()}


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
def test_variant_counts_as_in_transformers(transformers: Any, name: str, changes: dict[str, Any]):
    config = {**networks.config(name), **changes}

    assert ours(config) == counted(built(transformers, config))


@pytest.mark.parametrize(("name", "table", "changes"), NESTED)
def test_variant_of_a_table_counts_as_in_transformers(
    transformers: Any, name: str, table: str, changes: dict[str, Any]
):
    config = dict(networks.config(name))
    config[table] = {**config[table], **changes}

    assert ours(config) == counted(built(transformers, config))


def test_siglip_tower_with_pooler_counts_as_in_transformers(transformers: Any):
    config = copy.deepcopy(dict(networks.config("gemma-3-4b")))
    del config["vision_config"]["vision_use_head"]

    assert ours(config) == counted(built(transformers, config))


def smallest_of_each_family() -> dict[str, str]:
    built_there = [name for name in networks.names() if name not in ELSEWHERE]
    names = sorted(built_there, key=lambda name: network_parameters(networks.network(name)).total)
    return {networks.network(name).family: name for name in reversed(names)}


@pytest.mark.parametrize("name", smallest_of_each_family().values())
def test_missing_keys_take_the_defaults_of_transformers(transformers: Any, name: str):
    complete = {**networks.config(name), **SHORTER.get(name, {})}
    # a missing class means a head here, and the projector has to end at the width of the decoder
    for key in complete.keys() - {"model_type", "architectures", "vision_config"}:
        config = {other: value for other, value in complete.items() if other != key}
        try:
            count = ours(config)
        except InvalidInput:
            continue  # sizes have no default here
        assert count == counted(built(transformers, config)), key
