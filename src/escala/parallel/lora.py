"""Low-rank adapters around frozen linear maps, which QLoRA keeps in four bits. Needs peft (and bitsandbytes).

Applied to a module before a plan is. Modules keep their places; a map's own weight becomes `base_layer`.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import nn

from escala.errors import InvalidInput, MissingExtra
from escala.model.plan import Precision
from escala.model.workload import Lora, Method, Workload
from escala.parallel.formats import AUTOCAST
from escala.parallel.parts import Parts

ENDS: Final = {
    "q": ("q_proj", "qkv_proj", "attn.c_attn"),
    "k": ("k_proj", "qkv_proj", "attn.c_attn"),
    "v": ("v_proj", "qkv_proj", "attn.c_attn"),
    "o": ("o_proj", "attn.c_proj"),
    "gate": ("gate_proj", "gate_up_proj"),
    "up": ("up_proj", "gate_up_proj", "mlp.c_fc"),
    "down": ("down_proj", "mlp.c_proj"),
}
"""How the names of linear maps end that a word means."""
ALPHA_RATIO: Final = 2
"""Adapters are scaled by alpha / rank; alpha = 2 x rank as is usual with peft."""
ADAPTER: Final = "lora_"
BASE_MODEL: Final = "base_model_name_or_path"
"""What peft calls the model that adapters belong to."""
EXPERT_DIMS: Final = 3
"""Matrices of experts are stacked in one parameter: experts, rows, columns."""


def adapt(module: nn.Module, parts: Parts, workload: Workload, precision: Precision) -> dict[str, Any]:
    """Freeze the module and put adapters beside its linear maps; nothing for other methods than (Q)LoRA.

    What comes back is the content of peft's adapter_config.json; empty without adapters.
    """
    if workload.method is Method.ADAPTER:
        raise InvalidInput("adapters in series are planned only; choose --method lora, qlora or full")
    if workload.method not in (Method.LORA, Method.QLORA):
        return {}
    lora = workload.lora or Lora()
    named = list(_targets(module, parts, lora))
    _refuse(module, lora, named, is_quantised=workload.method is Method.QLORA)
    module.requires_grad_(False)
    if precision in AUTOCAST:
        module.to(AUTOCAST[precision])
    if workload.method is Method.QLORA:
        _quantise(module, parts)
    return _inject(module, lora, named)


def is_adapted(module: nn.Module) -> bool:
    """Whether a module has adapters."""
    return any(ADAPTER in name for name, _ in module.named_parameters())


def _targets(module: nn.Module, parts: Parts, lora: Lora) -> Iterator[str]:
    ends = tuple(f".{end}" for word in lora.targets for end in ENDS.get(word, ()))
    for name, _ in module.named_modules():
        if name.endswith(ends) and name.startswith(tuple(f"{block}." for block in parts.blocks)):
            yield name


def _refuse(module: nn.Module, lora: Lora, named: list[str], *, is_quantised: bool) -> None:
    unknown = [word for word in lora.targets if word not in ENDS]
    if unknown:
        raise InvalidInput(f"LoRA knows no map '{unknown[0]}'; choose among {', '.join(ENDS)}")
    if not named:
        raise InvalidInput(
            f"{type(module).__name__} has no linear map in its blocks for {', '.join(lora.targets)}; "
            f"maps are found by name: {', '.join(sorted({end for ends in ENDS.values() for end in ends}))}"
        )
    if lora.has_dropout:
        raise InvalidInput("adapters with dropout would differ between layouts; set has_dropout to false")
    if lora.weight_bytes != torch.float32.itemsize:
        raise InvalidInput("adapters are trained in fp32; set weight_bytes to 4")
    stacked = [name for name, each in module.named_parameters() if each.ndim == EXPERT_DIMS]
    if stacked and (is_quantised or {"gate", "up", "down"} & set(lora.targets)):
        raise InvalidInput(
            f"experts ({stacked[0]}) get neither adapters nor four bits; use LoRA on q, k, v, o"
        )
    others = [name for name in named if not isinstance(module.get_submodule(name), nn.Linear)]
    if is_quantised and others:
        kind = type(module.get_submodule(others[0])).__name__
        raise InvalidInput(f"QLoRA quantises linear maps, and {others[0]} is a {kind}; use LoRA")
    for needed in ("peft", "bitsandbytes") if is_quantised else ("peft",):
        if find_spec(needed) is None:
            raise MissingExtra(f"{needed} is not installed; run: pip install 'escala[lora]'")


def _quantise(module: nn.Module, parts: Parts) -> None:
    """Linear maps of all blocks in NF4 with doubly quantised scales; products in the activations' format.

    Source: Dettmers et al. 2023 (QLoRA), section 3.
    """
    for place in parts.blocks:
        block = module.get_submodule(place)
        for name, each in list(block.named_modules()):
            if type(each) is nn.Linear:
                block.set_submodule(name, _quantised(each))


def _quantised(linear: nn.Linear) -> nn.Module:
    from bitsandbytes.nn import Linear4bit, Params4bit

    chosen = {"quant_type": "nf4", "compress_statistics": True}
    result = Linear4bit(linear.in_features, linear.out_features, False, device="meta", **chosen)
    result.weight = Params4bit(linear.weight.data, requires_grad=False, module=result, **chosen)
    result.bias = linear.bias
    result.to(linear.weight.device)  # quantises
    assert result.weight.dtype is torch.uint8
    assert result.quant_state is not None
    return result


def _inject(module: nn.Module, lora: Lora, named: list[str]) -> dict[str, Any]:
    from peft import LoraConfig, inject_adapter_in_model

    is_transposed = not isinstance(module.get_submodule(named[0]), nn.Linear)
    chosen = LoraConfig(
        r=lora.rank,
        lora_alpha=ALPHA_RATIO * lora.rank,
        lora_dropout=0.0,
        target_modules=named,
        fan_in_fan_out=is_transposed,
    )
    module.is_loaded_in_4bit = any(each.dtype is torch.uint8 for each in module.parameters())  # peft asks
    inject_adapter_in_model(chosen, module)
    for name, each in module.named_parameters():
        if ADAPTER in name:
            each.data = each.data.float()
    held: dict[str, Any] = {name: each for name, each in module.named_parameters() if each.requires_grad}
    assert held, "no adapter is trained"
    assert all(ADAPTER in name for name in held), sorted(held)[:4]
    return _facts(chosen, module)


def _facts(chosen: Any, module: nn.Module) -> dict[str, Any]:
    """The settings of adapters as peft stores them, so that peft finds the maps again in the base model."""
    facts: dict[str, Any] = {
        name: sorted(value) if isinstance(value, set) else value for name, value in chosen.to_dict().items()
    }
    is_language_model = type(module).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    return {**facts, "task_type": "CAUSAL_LM" if is_language_model else None, "inference_mode": True}
