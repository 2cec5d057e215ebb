"""Adapters by the names of a checkpoint: alone as peft has them, or added to their weights. No files."""

from collections.abc import Mapping
from typing import Any, Final

import torch

from escala.errors import InvalidInput, MissingExtra
from escala.parallel.lora import ADAPTER

BASE: Final = ".base_layer."
"""What peft puts between a map and its own weight."""
OF_PEFT: Final = "base_model.model."
"""What peft puts before the names of a model."""
NAME: Final = ".default"
"""peft's name of the only adapter, which its files leave out."""
DOWN, UP = ".lora_A.default.weight", ".lora_B.default.weight"
QUANTISED: Final = "quant_state.bitsandbytes__nf4"


def adapters_alone(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Adapters under the names of peft's adapter_model.safetensors."""
    return {
        f"{OF_PEFT}{name.replace(f'{NAME}.', '.')}": tensor
        for name, tensor in weights.items()
        if ADAPTER in name
    }


def merged(weights: Mapping[str, torch.Tensor], adapter: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """W + alpha / rank * B A for each map with an adapter, in the weight's format; all others as they are.

    The sum is formed in fp32. Weights of four bits are made whole in the format that they were computed in.
    Source: Hu et al. 2021 (LoRA), section 4.1.
    """
    found = _dequantised(weights)
    for name in [each for each in found if each.endswith(DOWN)]:
        place = name.removesuffix(DOWN)
        own = f"{place}{BASE}weight"
        found[own] = _sum(found[own], found.pop(name), found.pop(f"{place}{UP}"), adapter)
    left = next((name for name in found if ADAPTER in name), None)
    if left is not None:
        raise InvalidInput(f"{left} is no adapter of low rank that could be added; export with --adapter")
    return {name.replace(BASE, "."): tensor for name, tensor in found.items()}


def _sum(own: torch.Tensor, down: torch.Tensor, up: torch.Tensor, adapter: Mapping[str, Any]) -> torch.Tensor:
    more = up.float() @ down.float() * (adapter["lora_alpha"] / adapter["r"])
    return (own.float() + (more.T if adapter["fan_in_fan_out"] else more)).to(own.dtype)


def _dequantised(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of four bits as numbers again; what bitsandbytes keeps beside them goes."""
    ends = f".{QUANTISED}"
    small = [name.removesuffix(ends) for name in weights if name.endswith(ends)]
    if not small:
        return dict(weights)
    functions = _functions()
    found = {
        name: tensor
        for name, tensor in weights.items()
        if not any(name.startswith(f"{each}.") for each in small)
    }
    for name in small:
        beside = {
            each.removeprefix(f"{name}."): weights[each] for each in weights if each.startswith(f"{name}.")
        }
        state = functions.QuantState.from_dict(beside, device=torch.device("cpu"))
        found[name] = functions.dequantize_4bit(weights[name], state)
    return found


def _functions() -> Any:
    try:
        from bitsandbytes import functional
    except ImportError:
        raise MissingExtra(
            "weights of four bits are made whole by bitsandbytes: pip install 'escala[lora]'"
        ) from None
    return functional
