"""[model] of a scenario: a network that escala knows, or numbers; what of it is trained and sent."""

from pathlib import Path
from typing import Final

from escala.errors import EscalaError
from escala.federated.filetable import ANY, POSITIVE, Bounds, Table
from escala.federated.scenario import Learnt
from escala.federated.training import Part
from escala.formats.networks import ENDINGS, find_network
from escala.model.flops import forward_flop
from escala.model.network import Network
from escala.model.parameters import block_parameters, head_parameters, network_parameters
from escala.model.shards import lora_parameters
from escala.model.workload import Lora

KEYS: Final = (
    *("network", "name", "sequence_tokens", "weights", "forward_flop_per_sample"),
    *("part", "trained_weights", "trained_layers", "lora_rank", "weight_bytes", "training_memory"),
)
MOST_WEIGHTS: Final = Bounds(low=1, high=1e14)
MOST_LAYERS: Final = Bounds(low=0, high=10_000)
MOST_TOKENS: Final = Bounds(low=1, high=1e8)


def read_model(table: Table) -> tuple[Learnt, Part]:
    """What is learnt, and which part of it is trained and sent."""
    table.allow(KEYS)
    part = table.word("part", Part, Part.FULL)
    network = _network(table)
    weights = _weights(table, network)
    trained = _trained(table, network, part, weights)
    if trained > weights:
        raise table.fail(
            f"trained_weights {trained:,.0f} is above weights {weights:,.0f}; write at most that"
        )
    learnt = Learnt(
        name=table.text("name", "model" if network is None else network.name),
        weights=weights,
        trained_weights=trained,
        forward_flop_per_sample=_flop(table, network),
        weight_bytes=table.number("weight_bytes", Bounds(low=0.1, high=8.0), 4.0),
        training_memory_bytes=table.optional_quantity("training_memory", "bytes", POSITIVE),
    )
    return learnt, part


def _network(table: Table) -> Network | None:
    if not table.has("network"):
        return None
    given = table.text("network")
    beside = Path(table.origin).parent / given
    try:
        return find_network(str(beside) if given.lower().endswith(ENDINGS) and beside.exists() else given)
    except EscalaError as error:
        raise table.fail(f"network: {error}") from None


def _weights(table: Table, network: Network | None) -> float:
    if network is None:
        return table.number("weights", MOST_WEIGHTS)
    if table.has("weights"):
        raise table.fail("gives weights beside network, which has its own; keep one of them")
    return float(network_parameters(network).total)


def _flop(table: Table, network: Network | None) -> float:
    if network is None or table.has("forward_flop_per_sample"):
        return table.quantity("forward_flop_per_sample", "flop", POSITIVE)
    if any(stack.tokens is None for stack in network.stacks):
        tokens = table.count("sequence_tokens", MOST_TOKENS)
        return sum(forward_flop(network, tokens))
    return sum(forward_flop(network, 1))


def _trained(table: Table, network: Network | None, part: Part, weights: float) -> float:
    if part is Part.FULL:
        _refuse(table, ("trained_weights", "trained_layers", "lora_rank"), part)
        return weights
    if table.has("trained_weights") or network is None:
        return table.number("trained_weights", MOST_WEIGHTS)
    if part is Part.LORA:
        _refuse(table, ("trained_layers",), part)
        return lora_weights(network, table.count("lora_rank", Bounds(low=1, high=65536), 16))
    _refuse(table, ("lora_rank",), part)
    return last_weights(network, table.count("trained_layers", MOST_LAYERS, 0))


def _refuse(table: Table, keys: tuple[str, ...], part: Part) -> None:
    for key in keys:
        if table.has(key):
            raise table.fail(f"gives {key}, which part = '{part}' does not use; remove it or change part")


def lora_weights(network: Network, rank: int) -> float:
    """Adapters of all layers: rank * (inputs + outputs) of each linear map.

    Source: Hu et al. 2021 (LoRA), section 4.1.
    """
    lora, found = Lora(rank=rank), 0.0
    for stack in network.stacks:
        for index, block in enumerate(stack.blocks):
            found += stack.count(index) * sum(lora_parameters(block, stack, lora))
    return found


def last_weights(network: Network, layers: int) -> float:
    """The head and the last layers of the last stack."""
    stack = network.stacks[-1]
    last = stack.pattern[max(stack.layers - layers, 0) :]
    blocks = sum(block_parameters(stack.blocks[index], stack.hidden).total for index in last)
    return max(float(blocks + head_parameters(stack.head, stack.hidden).total), ANY.low)
