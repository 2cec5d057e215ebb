"""The shape of a network in rows for people: layers, widths, heads, experts, parameters. Reads no file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from escala.model.kinds import part_words
from escala.model.network import (
    Attention,
    AttentionKind,
    Convolution,
    Experts,
    FeedForward,
    Mixer,
    Network,
    Part,
    Stack,
    StackRole,
)
from escala.model.parameters import active_parameters, network_parameters

Kind = TypeVar("Kind", bound=Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One property: its value, the value in words, what it means, and whether it is counted by escala."""

    name: str
    value: float | str
    text: str
    condition: str = ""
    is_counted: bool = False


def shape_rows(network: Network) -> Iterator[Row]:
    """Every property of the shape, then the parameters by class."""
    yield Row(name="family", value=network.family, text=network.family)
    for stack in network.stacks:
        prefix = f"{stack.role}." if len(network.stacks) > 1 else ""
        yield from _named(prefix, _stack_rows(stack))
    if network.max_tokens is not None:
        yield replace(_number("context", network.max_tokens), text=f"{network.max_tokens:,} tokens")
    yield from parameter_rows(network)


def parameter_rows(network: Network) -> Iterator[Row]:
    """All parameters, those that one token uses, and the classes that sharding tells apart."""
    held, active = network_parameters(network), active_parameters(network)
    yield _counted("parameters", held.total, "counted from this shape")
    if active != held.total:
        yield _counted("active_parameters", active, "used by one token")
    idle = held.total - active
    used = f", {held.expert - idle:,} active" if idle else ""
    classes = {
        "matrices": (held.column_row, "of attention and feed-forward; tensor parallelism splits them"),
        "experts": (held.expert, f"routed; expert parallelism deals them out{used}"),
        "embedding": (held.embedding, "table of the vocabulary"),
        "head": (held.head, "output matrix, where it is not tied to the embedding"),
        "others": (held.replicated, "norms, routers, biases, positions, convolutions; on every tensor rank"),
    }
    for name, (number, meaning) in classes.items():
        if number:
            yield _counted(f"parameters.{name}", number, meaning)


def _stack_rows(stack: Stack) -> Iterator[Row]:
    yield _number("layers", stack.layers)
    yield _number("hidden", stack.hidden)
    yield from _attention_rows(stack)
    yield from _mixer_rows(stack)
    feeds = _parts(stack, FeedForward)
    few = f"in {len(feeds):,} layers" if len(feeds) < stack.layers else ""
    words = ", ".join(word for word in (_gates(feeds), few) if word)
    yield from _several("feed_forward", [part.width for part in feeds], words)
    yield from _expert_rows(stack)
    convolutions = _parts(stack, Convolution)
    if convolutions:
        yield _number("convolutions", len(convolutions))
    yield from _end_rows(stack)


def _attention_rows(stack: Stack) -> Iterator[Row]:
    found = _parts(stack, Attention)
    yield from _several("heads", [part.heads for part in found])
    yield from _several("kv_heads", [part.kv_heads for part in found if not part.kv_rank])
    yield from _several("head_dim", [part.head_dim for part in found])
    yield from _several("kv_rank", [part.kv_rank for part in found if part.kv_rank], "latent attention")
    kinds = Counter(_kind(part) for part in found)
    if set(kinds) - {"full"}:
        text = ", ".join(f"{kind} in {number:,} layers" for kind, number in kinds.items())
        yield Row(name="attention", value=text, text=text)


def _mixer_rows(stack: Stack) -> Iterator[Row]:
    """Recurrent mixers in words, each with the number of layers that have it."""
    for part, layers in Counter(_parts(stack, Mixer)).items():
        text = part_words(part)
        yield Row(name="mixer", value=text, text=text, condition=f"in {layers:,} layers")


def _kind(part: Attention) -> str:
    shared = {0: ", keys of an earlier layer", 1: ", keys as values"}.get(part.key_value_maps, "")
    if part.kind in (AttentionKind.SLIDING, AttentionKind.CHUNKED) and part.window_tokens:
        words = "sliding over" if part.kind is AttentionKind.SLIDING else "in chunks of"
        return f"{words} {part.window_tokens:,} tokens{shared}"
    if part.pooled_tokens:
        return f"{part.kind} of one key for {part.pooled_tokens:,} tokens"
    return f"{part.kind}{shared}"


def _expert_rows(stack: Stack) -> Iterator[Row]:
    found = _parts(stack, Experts)
    yield from _several("experts", [part.experts for part in found], f"in {len(found):,} layers")
    yield from _several("top_k", [part.top_k for part in found], "experts that one token uses")
    yield from _several("expert_width", [part.width for part in found], _gates(found))
    shared = [part.shared_width for part in found if part.shared_width]
    yield from _several("shared_width", shared, "experts that every token uses, together")


def _end_rows(stack: Stack) -> Iterator[Row]:
    """What goes in and what comes out."""
    head, table = stack.head, stack.embedding
    if stack.tokens is not None and stack.role is not StackRole.CONVOLUTION:
        yield _number("tokens", stack.tokens, _of_one(stack))
    vocab = table.vocab if table is not None else 0
    if vocab:
        tied = "output tied to it" if head is not None and head.is_tied else ""
        yield _number("vocabulary", vocab, tied)
    if head is not None and head.outputs and head.outputs != vocab and not head.is_tied:
        yield _number("outputs", head.outputs)


def _of_one(stack: Stack) -> str:
    """What a stream of fixed length is made of."""
    if stack.role is StackRole.PROJECTOR:
        return "of the text, for one image" if stack.streams_per_sample else "of the text, for one sound"
    if stack.role is StackRole.VISION:
        return "of one image" if stack.grid is None or stack.grid.tile_pixels is None else "of one tile"
    return "of 30 s of sound"


def _parts(stack: Stack, kind: type[Kind]) -> list[Kind]:
    """The parts of a kind, layer by layer."""
    layers = (stack.blocks[index].parts for index in stack.pattern)
    return [part for parts in layers for part in parts if isinstance(part, kind)]


def _gates(parts: Iterable[FeedForward | Experts]) -> str:
    return "gated" if any(part.is_gated for part in parts) else ""


def _several(name: str, values: list[int], condition: str = "") -> Iterator[Row]:
    """One value, or each with the number of layers that have it; nothing where no layer has any."""
    layers = Counter(values)
    if len(layers) == 1:
        yield _number(name, values[0], condition)
    elif layers:
        text = ", ".join(f"{value:,} in {number:,} layers" for value, number in layers.items())
        yield Row(name=name, value=text, text=text, condition=condition)


def _number(name: str, value: int, condition: str = "") -> Row:
    return Row(name=name, value=float(value), text=f"{value:,}", condition=condition)


def _counted(name: str, value: int, condition: str) -> Row:
    return Row(name=name, value=float(value), text=f"{value:,}", condition=condition, is_counted=True)


def _named(prefix: str, rows: Iterable[Row]) -> Iterator[Row]:
    yield from (replace(row, name=f"{prefix}{row.name}") for row in rows)
