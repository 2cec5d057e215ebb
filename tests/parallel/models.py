"""Small modules that tests of layouts train, by kind: the same seed gives the same weights."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from escala.model.network import (
    Attention,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Network,
    Stack,
    StackRole,
)
from escala.parallel.nets.decoder import Decoder
from escala.parallel.nets.experts import Router

VOCABULARY, TOKENS, LAYERS, HIDDEN = 96, 16, 4, 32
CLASSES, PIXELS = 10, 32


def model(kind: str) -> nn.Module:
    """A module of a kind with its own random weights, the same in every process."""
    torch.manual_seed(7)
    return KINDS[kind]()


def is_image(kind: str) -> bool:
    """Kinds that are called with images."""
    return kind.endswith(("resnet", "vit", "images"))


def has_batch_norm(kind: str) -> bool:
    """Kinds whose answer to one sample depends on the others of its forward pass."""
    return kind.endswith("resnet")


def network(
    *, is_gated: bool = True, experts: int = 0, kv_heads: int = 4, positions: int = 0, **more: Any
) -> Network:
    """A decoder of four layers: Llama's, GPT-2's (with positions), or one with experts."""
    is_tied = more.pop("is_tied", False)
    attention = Attention(heads=4, kv_heads=kv_heads, head_dim=8, value_head_dim=8, **more)
    feed = FeedForward(width=64, is_gated=is_gated, has_bias=not is_gated)
    routed = Experts(experts=experts, top_k=2, width=48) if experts else feed
    vectors = 2 if positions else 1
    stack = Stack(
        role=StackRole.DECODER,
        hidden=HIDDEN,
        blocks=(Block(name="layer", parts=(attention, routed), norm_weights=vectors),),
        pattern=(0,) * LAYERS,
        embedding=Embedding(vocab=VOCABULARY, positions=positions),
        head=Head(outputs=VOCABULARY, is_tied=is_tied),
        final_norm_weights=vectors,
    )
    return Network(name="tiny", family="tiny", stacks=(stack,))


def _hf(kind: str, **keys: Any) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    given = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, **keys}
    loaded: nn.Module = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **given))
    return loaded


def _hf_llama() -> nn.Module:
    return _hf(
        "llama", hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip


def _hf_gpt2(vocabulary: int = VOCABULARY) -> nn.Module:
    return _hf(
        "gpt2", vocab_size=vocabulary, n_embd=HIDDEN, n_layer=LAYERS, n_head=4, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip


def _hf_resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(
        ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic", num_labels=CLASSES
        )
    )


def _hf_vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            image_size=PIXELS, patch_size=8, num_labels=CLASSES, hidden_dropout_prob=0.0,
        )
    )  # fmt: skip


def _chain_of_images() -> nn.Module:
    """A plain sequence whose stream changes its shape between blocks, with chains inside the chain."""
    return nn.Sequential(
        OrderedDict(
            stem=nn.Conv2d(3, 8, 4, stride=4),
            wide=nn.Sequential(*(_ConvBlock(8) for _ in range(2))),
            narrow=nn.Sequential(*(_ConvBlock(8, stride=2) for _ in range(2))),
            head=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)),
        )
    )


class _ConvBlock(nn.Module):
    """A residual block of convolutions; with a stride it halves height and width."""

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(2, channels)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(image)
        return pooled + torch.relu(self.norm(self.conv(pooled)))


def _chain_of_tokens() -> nn.Module:
    """A plain sequence over tokens: an embedding, four blocks without attention, a head."""
    blocks = (
        nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 64), nn.GELU(), nn.Linear(64, HIDDEN))
        for _ in range(LAYERS)
    )
    return nn.Sequential(
        OrderedDict(
            embed=nn.Embedding(VOCABULARY, HIDDEN),
            blocks=nn.Sequential(*blocks),
            head=nn.Linear(HIDDEN, VOCABULARY),
        )
    )


def _lopsided() -> nn.Module:
    """Experts of which all tokens choose the same two at first: a router of zeros knows no difference."""
    module = Decoder(network(experts=8))
    for each in module.modules():
        if isinstance(each, Router):
            nn.init.zeros_(each.weight)
    return module


def _hf_small(kind: str, **keys: Any) -> nn.Module:
    return _hf(
        kind, **{
            "hidden_size": HIDDEN, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "use_cache": False,
            "pad_token_id": None, "attn_implementation": "eager", **keys,
        },
    )  # fmt: skip


ROUTED: dict[str, Any] = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
TWO_WINDOWS: dict[str, Any] = {
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"],
}


def adapted(kind: str, method: str, *targets: str) -> nn.Module:
    """A kind with adapters of rank 4 around frozen weights."""
    from escala.model.plan import Precision
    from escala.model.workload import Lora, Method, Workload
    from escala.parallel.lora import adapt
    from escala.parallel.parts import parts_of

    module = KINDS[kind]()
    lora = Lora(rank=4, targets=targets) if targets else Lora(rank=4)
    workload = Workload(
        network=network(), sequence_tokens=TOKENS, global_batch=8, method=Method(method), lora=lora
    )
    adapt(module, parts_of(module), workload, Precision.FP32)
    return module


KINDS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: Decoder(network(kv_heads=2)),
    "gpt2": lambda: Decoder(
        network(is_gated=False, positions=64, has_qkv_bias=True, has_output_bias=True, is_tied=True)
    ),
    "moe": lambda: Decoder(network(experts=8, has_qk_norm=True)),
    "hf-gpt2-odd": lambda: _hf_gpt2(VOCABULARY + 1),
    "moe-lopsided": _lopsided,
    "qk-norm": lambda: Decoder(network(kv_heads=2, has_qk_norm=True, has_qkv_bias=True)),
    "hf-qwen3": lambda: _hf_small("qwen3"),
    "hf-gemma2": lambda: _hf_small("gemma2", pad_token_id=0, **TWO_WINDOWS),
    "hf-gemma3": lambda: _hf_small("gemma3_text", pad_token_id=0, **TWO_WINDOWS),
    "hf-mixtral": lambda: _hf_small("mixtral", num_local_experts=4, sliding_window=None),
    "hf-qwen2-moe": lambda: _hf_small("qwen2_moe", shared_expert_intermediate_size=24, **ROUTED),
    "hf-qwen3-moe": lambda: _hf_small("qwen3_moe", **ROUTED),
    "hf-llama": _hf_llama,
    "hf-gpt2": _hf_gpt2,
    "lora-llama": lambda: adapted("llama", "lora"),
    "lora-hf-gpt2": lambda: adapted("hf-gpt2", "lora"),
    "lora-moe": lambda: adapted("moe", "lora", "q", "v"),
    "qlora-llama": lambda: adapted("llama", "qlora"),
    "qlora-hf-llama": lambda: adapted("hf-llama", "qlora"),
    "hf-resnet": _hf_resnet,
    "hf-vit": _hf_vit,
    "chain-images": _chain_of_images,
    "chain-tokens": _chain_of_tokens,
}
