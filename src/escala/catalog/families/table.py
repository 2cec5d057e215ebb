"""The table of families, and what all of them have in common: name, context, stored width, wrapped class."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from escala.catalog.families import (
    classic,
    compressed,
    convolution,
    dense,
    efficientnet,
    encoder,
    gemma4,
    moe,
    multimodal,
    recurrent,
    speech,
    vision,
)
from escala.catalog.families.config import Config
from escala.catalog.families.layers import architecture
from escala.errors import InvalidInput, unknown
from escala.model.network import Network, Stack

HINT: Final = "known are {names}; describe other networks in a TOML file (docs: network descriptions)"
DTYPE_BITS: Final = {
    "float64": 64.0,
    "float32": 32.0,
    "float16": 16.0,
    "bfloat16": 16.0,
    "float8_e4m3fn": 8.0,
    "float8_e5m2": 8.0,
}
# bits of one stored weight by quant_method; mxfp4: 4 bits and one 8-bit scale for 32 weights (OCP MX 1.0)
QUANTIZED_BITS: Final = {"fp8": 8.0, "fbgemm_fp8": 8.0, "mxfp4": 4.25}


LAYERS_OF: Final = {"BailingMoeV2_5ForCausalLM": "BailingMoeV2_5DecoderLayer"}
"""Layer classes of models that share the model_type of another family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How to build a family: its builder, the layer class that FSDP wraps, the context when none is given.

    `spare_positions` are rows of the position table that hold no token.
    """

    build: Callable[[Config], tuple[Stack, ...]]
    wrapped_class: str | None
    max_tokens: int | None = None
    spare_positions: int = 0


def _decoder(build: Callable[[Config], tuple[Stack, ...]], prefix: str, max_tokens: int) -> Family:
    return Family(build=build, wrapped_class=f"{prefix}DecoderLayer", max_tokens=max_tokens)


FAMILIES: Final[dict[str, Family]] = {
    "llama": _decoder(dense.llama, "Llama", 2048),
    "mistral": _decoder(dense.mistral, "Mistral", 131_072),
    "mixtral": _decoder(moe.mixtral, "Mixtral", 131_072),
    "qwen2": _decoder(dense.qwen2, "Qwen2", 32_768),
    "qwen2_moe": _decoder(moe.qwen2_moe, "Qwen2Moe", 32_768),
    "qwen3": _decoder(dense.qwen3, "Qwen3", 32_768),
    "qwen3_moe": _decoder(moe.qwen3_moe, "Qwen3Moe", 32_768),
    "gemma": _decoder(dense.gemma, "Gemma", 8192),
    "gemma2": _decoder(dense.gemma2, "Gemma2", 8192),
    "gemma3_text": _decoder(dense.gemma3_text, "Gemma3", 131_072),
    "phi3": _decoder(dense.phi3, "Phi3", 4096),
    "glm4": _decoder(dense.glm4, "Glm4", 131_072),
    "olmo2": _decoder(dense.olmo2, "Olmo2", 2048),
    "granite": _decoder(dense.llama, "Granite", 2048),
    "deepseek_v2": _decoder(moe.deepseek_v2, "DeepseekV2", 2048),
    "deepseek_v3": _decoder(moe.deepseek_v3, "DeepseekV3", 4096),
    "deepseek_v32": _decoder(moe.deepseek_v32, "DeepseekV32", 163_840),
    "deepseek_v4": _decoder(compressed.deepseek_v4, "DeepseekV4", 1_048_576),
    "glm_moe_dsa": _decoder(moe.glm_moe_dsa, "GlmMoeDsa", 202_752),
    "bailing_moe_v2": _decoder(moe.bailing_moe_v2, "BailingMoeV2", 32_768),
    "bailing_hybrid": _decoder(recurrent.bailing_hybrid, "BailingHybrid", 262_144),
    "kimi_linear": _decoder(recurrent.kimi_linear, "KimiLinear", 1_048_576),
    "minimax": _decoder(recurrent.minimax, "MiniMax", 131_072),
    "qwen3_next": _decoder(recurrent.qwen3_next, "Qwen3Next", 32_768),
    "qwen3_5_text": _decoder(recurrent.qwen3_5_text, "Qwen3_5", 32_768),
    "qwen3_5_moe_text": _decoder(recurrent.qwen3_5_moe_text, "Qwen3_5Moe", 32_768),
    "falcon_h1": _decoder(recurrent.falcon_h1, "FalconH1", 8192),
    "nemotron_h": Family(build=recurrent.nemotron_h, wrapped_class="NemotronHBlock", max_tokens=4096),
    "mamba": Family(build=recurrent.mamba, wrapped_class="MambaBlock"),
    "mamba2": Family(build=recurrent.mamba2, wrapped_class="Mamba2Block"),
    "kimi_k2": _decoder(moe.deepseek_v3, "DeepseekV3", 131_072),
    "glm4_moe": _decoder(moe.glm4_moe, "Glm4Moe", 131_072),
    "minimax_m2": _decoder(moe.minimax_m2, "MiniMaxM2", 196_608),
    "gpt_oss": _decoder(moe.gpt_oss, "GptOss", 131_072),
    "falcon": _decoder(classic.falcon, "Falcon", 2048),
    "opt": _decoder(classic.opt, "OPT", 2048),
    "gpt2": Family(build=classic.gpt2, wrapped_class="GPT2Block", max_tokens=1024),
    "gpt_neox": Family(build=classic.gpt_neox, wrapped_class="GPTNeoXLayer", max_tokens=2048),
    "gptj": Family(build=classic.gptj, wrapped_class="GPTJBlock", max_tokens=2048),
    "bloom": Family(build=classic.bloom, wrapped_class="BloomBlock", max_tokens=2048),
    "bert": Family(build=encoder.bert, wrapped_class="BertLayer", max_tokens=512),
    "roberta": Family(build=encoder.roberta, wrapped_class="RobertaLayer", max_tokens=512, spare_positions=2),
    "t5": Family(build=encoder.t5, wrapped_class="T5Block"),
    "gemma3": _decoder(vision.gemma3, "Gemma3", 131_072),
    "qwen2_5_vl": _decoder(vision.qwen2_5_vl, "Qwen2_5_VL", 32_768),
    "qwen3_vl": _decoder(multimodal.qwen3_vl, "Qwen3VLText", 128_000),
    "qwen3_vl_moe": _decoder(multimodal.qwen3_vl_moe, "Qwen3VLMoeText", 128_000),
    "qwen3_5": _decoder(multimodal.qwen3_5, "Qwen3_5", 32_768),
    "qwen3_5_moe": _decoder(multimodal.qwen3_5_moe, "Qwen3_5Moe", 32_768),
    "gemma4": _decoder(gemma4.gemma4, "Gemma4Text", 131_072),
    "gemma4_text": _decoder(gemma4.gemma4_text, "Gemma4Text", 131_072),
    "llama4": _decoder(multimodal.llama4, "Llama4Text", 131_072),
    "llama4_text": _decoder(multimodal.llama4_text, "Llama4Text", 131_072),
    "mistral3": _decoder(multimodal.mistral3, "Mistral", 131_072),
    "whisper": Family(build=speech.whisper, wrapped_class="WhisperDecoderLayer", max_tokens=448),
    "efficientnet": Family(build=efficientnet.efficientnet, wrapped_class="EfficientNetBlock"),
    "vit": Family(build=vision.vit, wrapped_class="ViTLayer"),
    "resnet": Family(build=convolution.resnet, wrapped_class="ResNetStage"),
    "convnext": Family(build=convolution.convnext, wrapped_class="ConvNextLayer"),
}


POSITION_TABLES: Final = ("gpt2", "gptj", "opt", "bert", "roberta", "whisper")
"""Families whose positions are rows of a table, so that a longer sample cannot be run."""


def network_from_config(config: Mapping[str, object], name: str, source: str) -> Network:
    """The Network that the keys of a config.json describe.

    Raises InvalidInput for an unknown model_type, a missing key, or a value that is no size.
    """
    given = Config(keys=config, name=name)
    model_type = _model_type(given)
    family = FAMILIES[model_type]
    return Network(
        name=name,
        family=model_type,
        stacks=family.build(given),
        source=f"{source}; its auto_map was not run" if given.has("auto_map") else source,
        max_tokens=_max_tokens(given, family),
        stored_bits=_stored_bits(given),
        wrapped_class=LAYERS_OF.get(architecture(given), family.wrapped_class),
    )


def context_of(keys: Mapping[str, object], name: str) -> int | None:
    """The most tokens of a sample that a config.json allows; None where it sets no bound.

    A family's usual context is a bound only where its positions are a table.
    """
    config = Config(keys=keys, name=name)
    family = FAMILIES.get(config.word("model_type"))
    place = config.table("text_config") if config.has("text_config") else config
    if place.has("max_position_embeddings") and (family is None or family.max_tokens is not None):
        spare = 0 if family is None else family.spare_positions
        return place.count("max_position_embeddings") - spare
    return family.max_tokens if family and config.word("model_type") in POSITION_TABLES else None


def _model_type(config: Config) -> str:
    model_type = config.word("model_type")
    if not model_type:
        raise config.missing("model_type")
    if model_type not in FAMILIES:
        hint = HINT.format(names=", ".join(sorted(FAMILIES)))
        if config.has("auto_map"):
            hint = f"its auto_map points to code of the model repository, which escala never runs; {hint}"
        raise unknown("model_type", " ".join(model_type.split())[:60], FAMILIES, hint)
    return model_type


def _max_tokens(config: Config, family: Family) -> int | None:
    if family.max_tokens is None:
        return None
    place = config.table("text_config") if config.has("text_config") else config
    return place.count("max_position_embeddings", family.max_tokens) - family.spare_positions


def _stored_bits(config: Config) -> float:
    """Bits of one weight in the published file: by quantization_config, else by dtype.

    Files older than the key hold float32, the default type of PyTorch.
    """
    if config.has("quantization_config"):
        return _quantized_bits(config.table("quantization_config"))
    dtype = config.word("dtype", "float32").removeprefix("torch.")
    return DTYPE_BITS.get(dtype, 16.0)


def _quantized_bits(quantization: Config) -> float:
    method = quantization.word("quant_method")
    if method in QUANTIZED_BITS:
        return QUANTIZED_BITS[method]
    if quantization.has("bits") or quantization.has("w_bit"):
        key = "bits" if quantization.has("bits") else "w_bit"
        return float(_bits(quantization, key))
    if quantization.flag("load_in_4bit"):
        return 4.0
    return 8.0 if quantization.flag("load_in_8bit") else 16.0


def _bits(quantization: Config, key: str) -> int:
    bits = quantization.count(key)
    if bits > 64:
        raise InvalidInput(f"{quantization.name}: '{key}' in quantization_config is {bits}; write 1 to 64")
    return bits
