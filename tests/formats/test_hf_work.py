"""Forward work and kept activations of small networks, against the modules of transformers 5.24.

Run with `make test-hf`. FLOP are those of torch's FlopCounterMode with eager attention, whose scores are full
squares as ours are; what is no layer here, the map of the patches and the end of streams, is added. Kept
bytes are what autograd saves in bf16, for one more layer of a kind.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from escala import catalog
from escala.formats.hf import network_from_config
from escala.model.activations import kept
from escala.model.engine import AttentionKernel
from escala.model.flops import forward_flop
from escala.model.images import with_images
from escala.model.network import Network, StackRole
from escala.model.plan import Plan, Plans
from escala.planning.defaults import Question, answerable

pytestmark = pytest.mark.optional

TOKENS, IMAGE = 128, 500
torch: Any = pytest.importorskip("torch", reason="the oracle needs PyTorch")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def text(**keys: Any) -> dict[str, Any]:
    return {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
        "pad_token_id": 0,
        **keys,
    }


def words(image_tokens: int = 0) -> Any:
    torch.manual_seed(0)
    ids = torch.randint(1, 400, (1, TOKENS))
    ids[:, :image_tokens] = IMAGE
    return ids


def wide_words() -> dict[str, Any]:
    return {"input_ids": words()}


def qwen_inputs() -> dict[str, Any]:
    # 256 x 256 pixels, the least that is not enlarged: 16 x 16 patches, 64 tokens of the text
    ids = words(64)
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(256, 3 * 2 * 16 * 16),
        "image_grid_thw": torch.tensor([[1, 16, 16]]),
        "mm_token_type_ids": (ids == IMAGE).long(),
    }


def pixtral_inputs() -> dict[str, Any]:
    return {
        "input_ids": words(16),
        "pixel_values": torch.randn(1, 3, 112, 112),
        "image_sizes": torch.tensor([[112, 112]]),
    }


def gemma_inputs() -> dict[str, Any]:
    # 12 x 12 patches, pooled to 16 tokens
    ids = words(16)
    grid = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="xy")
    return {
        "input_ids": ids,
        "mm_token_type_ids": (ids == IMAGE).long(),
        "pixel_values": torch.rand(1, 144, 3 * 16 * 16),
        "image_position_ids": torch.stack(grid, -1).reshape(1, 144, 2),
    }


@dataclass(frozen=True)
class Case:
    """One small network: its config, inputs, pixels a side of its image, and how to run it."""

    config: dict[str, Any]
    inputs: Callable[[], dict[str, Any]] = wide_words
    pixels: int | None = None
    run: Callable[..., Any] = lambda model, **inputs: model(**inputs)


QWEN_VISION = {
    "depth": 3,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_heads": 4,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
    "patch_size": 16,
}
QWEN_IDS = {"image_token_id": IMAGE, "video_token_id": 501, "vision_start_token_id": 502}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}}
GEMMA_TEXT = {"global_head_dim": 32, "vocab_size_per_layer_input": 512}


def llama4_parts(model: Any, input_ids: Any, pixel_values: Any) -> None:
    found = model.vision_model(pixel_values).last_hidden_state
    out = model.multi_modal_projector(found.view(-1, found.size(-1)))
    return out.sum() + model.language_model(input_ids).logits.sum()


CASES = {
    "qwen3_vl": Case(
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            **QWEN_IDS,
            "text_config": text(**ROPE),
            "vision_config": QWEN_VISION,
        },
        qwen_inputs,
        256,
    ),
    "qwen3_vl_moe": Case(
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"],
            "model_type": "qwen3_vl_moe",
            **QWEN_IDS,
            "text_config": text(**ROPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48),
            "vision_config": QWEN_VISION,
        },
        qwen_inputs,
        256,
    ),
    "mistral3": Case(
        {
            "architectures": ["Mistral3ForConditionalGeneration"],
            "model_type": "mistral3",
            "image_token_index": IMAGE,
            "text_config": text(model_type="mistral"),
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "image_size": 112,
                "patch_size": 14,
            },
        },
        pixtral_inputs,
        112,
    ),
    "llama4": Case(
        {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            # one expert: transformers runs every expert on every token
            "text_config": text(
                intermediate_size_mlp=128,
                num_local_experts=1,
                num_experts_per_tok=1,
                interleave_moe_layer_step=2,
            ),
            "vision_config": {
                "hidden_size": 48,
                "intermediate_size": 192,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 112,
                "patch_size": 14,
                "projector_input_dim": 56,
                "projector_output_dim": 56,
                "vision_output_dim": 56,
            },
        },
        lambda: {"input_ids": words(), "pixel_values": torch.randn(1, 3, 112, 112)},
        None,
        llama4_parts,
    ),
    "gemma4 with shared keys and inputs of layers": Case(
        {
            "architectures": ["Gemma4ForConditionalGeneration"],
            "model_type": "gemma4",
            "text_config": text(
                **GEMMA_TEXT,
                num_hidden_layers=7,
                num_kv_shared_layers=1,
                use_double_wide_mlp=True,
                layer_types=["sliding_attention", "full_attention"] * 3 + ["full_attention"],
                hidden_size_per_layer_input=16,
            ),
        },
    ),
    "gemma4": Case(
        {
            "architectures": ["Gemma4ForConditionalGeneration"],
            "model_type": "gemma4",
            "image_token_id": IMAGE,
            "text_config": text(
                **GEMMA_TEXT,
                attention_k_eq_v=True,
                num_global_key_value_heads=1,
                enable_moe_block=True,
                num_experts=4,
                top_k_experts=2,
                moe_intermediate_size=48,
                hidden_size_per_layer_input=0,
            ),
            "vision_config": {
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 2,
                "num_attention_heads": 3,
                "num_key_value_heads": 3,
                "head_dim": 16,
                "position_embedding_size": 64,
            },
        },
        gemma_inputs,
    ),
    "glm4_moe": Case(
        {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            **text(hidden_size=256, moe_intermediate_size=128, n_routed_experts=4, num_experts_per_tok=2),
        }
    ),
    "minimax_m2": Case(
        {
            "architectures": ["MiniMaxM2ForCausalLM"],
            "model_type": "minimax_m2",
            **text(hidden_size=256, intermediate_size=128, num_local_experts=4, num_experts_per_tok=2),
        }
    ),
    "deepseek_v4": Case(
        {
            "architectures": ["DeepseekV4ForCausalLM"],
            "model_type": "deepseek_v4",
            "hidden_size": 256,
            "moe_intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "head_dim": 64,
            "q_lora_rank": 96,
            "o_groups": 4,
            "o_lora_rank": 48,
            "sliding_window": TOKENS,
            "compress_ratios": [0, 4, 128],
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
            "index_n_heads": 1,
            "index_head_dim": 8,
            "hc_mult": 2,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "num_hash_layers": 0,
            "vocab_size": 512,
        }
    ),
    "whisper": Case(
        {
            "architectures": ["WhisperForConditionalGeneration"],
            "model_type": "whisper",
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 256,
            "decoder_ffn_dim": 256,
            "vocab_size": 512,
            "max_source_positions": 100,
            "max_target_positions": TOKENS,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        lambda: {"input_features": torch.randn(1, 80, 200), "decoder_input_ids": words()},
    ),
    "efficientnet": Case(
        {
            "architectures": ["EfficientNetForImageClassification"],
            "model_type": "efficientnet",
            "width_coefficient": 1.0,
            "depth_coefficient": 1.1,
            "image_size": 120,
            "hidden_dim": 1280,
            "num_labels": 10,
            "depthwise_padding": [16],
        },
        lambda: {"pixel_values": torch.randn(1, 3, 120, 120)},
    ),
}


def built(config: dict[str, Any], has_eager_experts: bool = False) -> Any:
    transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")
    keys = copy.deepcopy(config)
    made = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
    kind = getattr(transformers, keys["architectures"][0])
    model = kind._from_config(made, attn_implementation="eager")
    if has_eager_experts:  # FlopCounterMode does not see grouped products
        model.set_experts_implementation("eager")
    return model


def ours(case: Case) -> Network:
    network = network_from_config(case.config, "mine", "test")
    if case.pixels is not None:
        network = with_images(network, images=1, height=case.pixels, width=case.pixels)
    if case.inputs is gemma_inputs:  # which pads every image to 2,520 patches
        tower, projector, *rest = network.stacks
        stacks = (replace(tower, tokens=144), replace(projector, tokens=16), *rest)
        network = replace(network, stacks=stacks)
    return network


def patch_flop(network: Network) -> float:
    """2 * patches * inputs * hidden of the tower."""
    for stack in network.stacks:
        if stack.role is StackRole.VISION and stack.embedding is not None:
            patches = (stack.tokens or 0) - (0 if stack.grid is None else stack.grid.spare_tokens)
            return 2.0 * patches * stack.embedding.patch_inputs * stack.hidden
    return 0.0


def collapse_flop(network: Network) -> float:
    """2 * tokens * streams * hidden * streams behind the last layer."""
    streams = network.main.streams
    return 2.0 * TOKENS * streams * network.main.hidden * streams if streams > 1 else 0.0


@pytest.mark.parametrize("name", CASES)
def test_forward_flop_are_those_of_the_module(name: str):
    from torch.utils.flop_counter import FlopCounterMode

    case = CASES[name]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        case.run(built(case.config, has_eager_experts=True).eval(), **case.inputs())

    # all exact but Gemma 4, whose pooling is a product with a matrix of zeros and ones (0.2 % here)
    network = ours(case)
    counted = sum(forward_flop(network, TOKENS)) + patch_flop(network) + collapse_flop(network)
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.0025 if name == "gemma4" else 1e-12)


@dataclass(frozen=True)
class Growth:
    """One more layer: case, the key that counts layers and two values, stack, block, bytes of a score.

    A softmax in 16 bit keeps 2 bytes of a score, one in fp32 keeps 4 more.
    """

    case: str
    key: tuple[str, ...]
    layers: tuple[int, int]
    stack: int
    block: int = 0
    score_bytes: float = 6.0
    changes: dict[str, Any] = field(default_factory=dict)
    near: float = 1e-12


GROWTHS = {
    "Qwen3-VL's tower": Growth("qwen3_vl", ("vision_config", "depth"), (2, 3), 0),
    "Pixtral": Growth("mistral3", ("vision_config", "num_hidden_layers"), (2, 3), 0),
    "Llama 4's tower": Growth("llama4", ("vision_config", "num_hidden_layers"), (2, 3), 0, 0, 2.0),
    "Gemma 4's tower": Growth("gemma4", ("vision_config", "num_hidden_layers"), (2, 3), 0, near=0.05),
    "a sliding layer of Gemma 4": Growth(
        "gemma4 with shared keys and inputs of layers",
        ("text_config", "num_hidden_layers"),
        (3, 4),
        1,
        changes={"text_config": {"layer_types": None, "num_kv_shared_layers": 0}},
        near=0.05,
    ),
    "Whisper's encoder": Growth("whisper", ("encoder_layers",), (2, 3), 1, 0, 2.0),
    "Whisper's decoder": Growth("whisper", ("decoder_layers",), (2, 3), 2, 0, 2.0),
    "GLM-4.5": Growth("glm4_moe", ("num_hidden_layers",), (2, 3), 0, 1, near=0.05),
    "DeepSeek V4, selected keys": Growth("deepseek_v4", ("num_hidden_layers",), (1, 2), 0, 1, 2.0, near=0.05),
    "DeepSeek V4, pooled keys": Growth("deepseek_v4", ("num_hidden_layers",), (2, 3), 0, 2, 2.0, near=0.05),
    "MiniMax-M2": Growth("minimax_m2", ("num_hidden_layers",), (2, 3), 0, near=0.05),
}


def changed(config: dict[str, Any], growth: Growth, layers: int) -> dict[str, Any]:
    config = copy.deepcopy(config)
    for place, keys in growth.changes.items():
        config[place].update(keys)
    place = config if len(growth.key) == 1 else config[growth.key[0]]
    place[growth.key[-1]] = layers
    return config


def saved_bytes(case: Case, config: dict[str, Any]) -> int:
    """Bytes of the storages that backward needs, weights and buffers excepted, each once."""
    model = built(config).to(torch.bfloat16).train()
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    found: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        found[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address comes twice
        return tensor

    inputs = {
        name: each.to(torch.bfloat16) if each.is_floating_point() else each
        for name, each in case.inputs().items()
    }
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = case.run(model, **inputs)
    del out
    return sum(each.untyped_storage().nbytes() for place, each in found.items() if place not in own)


def predicted_bytes(network: Network, score_bytes: float, stack: int, block: int | None) -> float:
    """Of one block of a stack, or of all its layers."""
    question = Question(
        network=network,
        cluster=catalog.cluster_for("h100-sxm", 1),
        engine="hf-bf16",
        sequence_tokens=None if network.is_image else TOKENS,
        global_batch=1,
    )
    problem, _ = answerable(question)
    engine = replace(
        problem.engine,
        time=replace(problem.engine.time, attention_kernel=AttentionKernel.UNFUSED),
        memory=replace(problem.engine.memory, score_bytes=score_bytes),
    )
    problem, row = replace(problem, engine=engine), network.stacks[stack]
    kinds = [row.blocks[block]] if block is not None else [row.blocks[kind] for kind in row.pattern]
    return sum(float(kept(problem, Plans.of(Plan()), row, each).whole_bytes[0]) for each in kinds)


@pytest.mark.parametrize("name", GROWTHS)
def test_one_more_layer_keeps_what_autograd_saves(name: str):
    growth = GROWTHS[name]
    case = CASES[growth.case]
    fewer, more = (saved_bytes(case, changed(case.config, growth, layers)) for layers in growth.layers)

    network = ours(replace(case, config=changed(case.config, growth, growth.layers[1])))
    predicted = predicted_bytes(network, growth.score_bytes, growth.stack, growth.block)
    assert predicted == pytest.approx(more - fewer, rel=growth.near)


def test_efficientnet_keeps_what_autograd_saves():
    # without the padded copies in front of strided kernels
    case = CASES["efficientnet"]
    saved = saved_bytes(case, case.config)

    assert predicted_bytes(ours(case), 6.0, 0, None) == pytest.approx(saved, rel=0.05)
