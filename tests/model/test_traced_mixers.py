"""Layers of transformers, traced: products as counted, kept bytes as the fused kernels would keep them.

The kernels do not run on a processor. In their place stand functions of autograd that save the tensors
which the kernels save (flash-linear-attention, gated_delta_rule/chunk.py; mamba-ssm, ssd_combined.py;
causal-conv1d) and compute nothing, so that the module around them is traced as it is.
"""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from escala.formats.hf import network_from_config
from escala.model.flops import forward_flop
from escala.model.mixers import eager_norm_bytes, mixer_kept_bytes
from escala.model.network import Mixer, Scan

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.optional
TOKENS = 256
QWEN = {
    "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "num_hidden_layers": 4,
    "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 256, "mlp_only_layers": [0, 1, 2, 3], "linear_key_head_dim": 32,
    "linear_value_head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "vocab_size": 256,
    "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
MAMBA2 = {
    "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "num_hidden_layers": 2,
    "hidden_size": 128, "num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 8, "chunk_size": 32,
    "vocab_size": 256,
}  # fmt: skip
MINIMAX = {
    "model_type": "minimax", "architectures": ["MiniMaxForCausalLM"], "num_hidden_layers": 2,
    "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 64, "num_local_experts": 2, "num_experts_per_tok": 2, "vocab_size": 256,
    "block_size": 32,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Warnings of the libraries are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def built(keys: dict[str, Any]) -> Any:
    own = copy.deepcopy(keys)
    config = transformers.AutoConfig.for_model(own.pop("model_type"), **own)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return getattr(transformers, keys["architectures"][0])(config)


def network(keys: dict[str, Any]) -> Any:
    return network_from_config(keys, "small", "test")


@pytest.mark.parametrize("keys", [QWEN, MAMBA2, MINIMAX], ids=["delta", "state space", "lightning"])
def test_products_are_those_that_pytorch_counts(keys):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        built(keys).eval()(torch.randint(0, 256, (1, TOKENS)), use_cache=False)

    # PyTorch counts no triangular solve: chunk 64 * (key 32 + value 64) for 8 heads of 3 layers
    solved = 3 * TOKENS * 8 * 2 * 64 * (32 + 64) if keys is QWEN else 0
    counted = counter.get_total_flops() + solved
    assert counted == pytest.approx(sum(forward_flop(network(keys), TOKENS)), rel=0.02)


class Saved(torch.autograd.Function):
    """Saves what it is given beside an output of its own; has no gradient worth a name."""

    @staticmethod
    def forward(ctx, source, *kept):
        ctx.save_for_backward(*kept)
        ctx.shape = source.shape
        return source.new_empty(1).expand(1)

    @staticmethod
    def backward(ctx, gradient):
        return (gradient.new_zeros(ctx.shape), *(None for _ in ctx.saved_tensors))


def kernel(source: Any, shape: tuple[int, ...], *kept: Any) -> Any:
    """An output of the shape that hangs on the source, and the tensors that a kernel keeps for it."""
    hook = Saved.apply(source, *(each.detach() for each in kept))
    out = torch.empty(shape, dtype=source.dtype)

    class Out(torch.autograd.Function):
        @staticmethod
        def forward(ctx, hook):
            return out

        @staticmethod
        def backward(ctx, gradient):
            return torch.zeros(1, dtype=gradient.dtype)

    return Out.apply(hook)


def kept_bytes(run: Any, parameters: set[int]) -> int:
    """Bytes of distinct storages that autograd saves in a run, parameters excepted."""
    found: dict[int, int] = {}
    alive = []

    def save(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        alive.append(run())
    return sum(found.values())


def traced(layer: Any, hidden: int) -> float:
    """Bytes a token that one mixer keeps beside its input, in bf16."""
    layer = layer.to(torch.bfloat16).train()
    stream = torch.randn(1, TOKENS, hidden, dtype=torch.bfloat16, requires_grad=True)
    own = {each.untyped_storage().data_ptr() for each in layer.parameters()}
    return kept_bytes(lambda: layer(stream), own) / TOKENS - 2.0 * hidden


def test_delta_rule_keeps_what_its_kernels_save(monkeypatch):
    from transformers.models.qwen3_next import modeling_qwen3_next as module

    def convolved(hidden_states, weight, bias=None, activation=None, **_):
        return kernel(hidden_states, hidden_states.shape, hidden_states)

    def delta(query, key, value, g, beta, **_):
        heads, half = value.shape[2], torch.bfloat16
        normed = [torch.empty(each.shape, dtype=half) for each in (query, key)]
        lengths = [torch.empty(*each.shape[:3]) for each in (query, key)]
        scores = torch.empty(1, TOKENS, heads, 64, dtype=half)
        kept = (*normed, *lengths, value.clone(), g, beta, scores)
        return kernel(value, value.shape, *kept) + 0 * (g.sum() + beta.sum()).to(half), None

    mixer = built(QWEN).model.layers[0].linear_attn
    monkeypatch.setattr(module, "causal_conv1d_fn", convolved)
    monkeypatch.setattr(module, "torch_chunk_gated_delta_rule", delta)
    part = next(each for each in network(QWEN).main.blocks[0].parts if isinstance(each, Mixer))

    assert part.scan is Scan.DELTA
    assert mixer_kept_bytes(part) + eager_norm_bytes(part) == pytest.approx(traced(mixer, 128), rel=0.02)
    mixer.norm = FusedNorm(mixer.norm.weight)
    assert mixer_kept_bytes(part) == pytest.approx(traced(mixer, 128), rel=0.02)


class FusedNorm(torch.nn.Module):
    """A gated norm in one kernel, which keeps both inputs."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, values, gate):
        return kernel(values, values.shape, values, gate)


def test_state_space_keeps_what_its_kernel_saves(monkeypatch):
    from transformers.models.mamba2 import modeling_mamba2 as module

    def combined(zxbcdt, *_, outproj_weight, **__):
        out = torch.empty(*zxbcdt.shape[:2], outproj_weight.shape[1], dtype=zxbcdt.dtype)
        statistics = torch.empty(*zxbcdt.shape[:2], 8)
        return kernel(zxbcdt, (1, TOKENS, outproj_weight.shape[0]), zxbcdt, out, statistics)

    mixer = built(MAMBA2).backbone.layers[0].mixer
    monkeypatch.setattr(module, "mamba2_split_conv1d_scan_combined", combined)
    part = network(MAMBA2).main.blocks[0].parts[0]

    assert mixer_kept_bytes(part) == pytest.approx(traced(mixer, 128), rel=0.02)
