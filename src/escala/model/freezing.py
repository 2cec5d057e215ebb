"""Which parts of a network are frozen, and how far gradients go. Knows the order of stacks; knows no plan.

A frozen part has no gradients, no optimizer state and no products for them. Gradients pass through it as long
as something is trained before it; where nothing is, it has no backward and keeps nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from escala.errors import InvalidInput, unknown
from escala.model.network import Block, Learning, Network, Stack, StackRole

LAYERS: Final = re.compile(r"layers:(\d{1,5})(?:-(\d{1,5}))?")
ENDS: Final = ("embedding", "head")
START: Final = (StackRole.VISION, StackRole.AUDIO)
"""Towers, which read their own input and nothing that was computed before."""


def freeze(network: Network, names: tuple[str, ...], *, adapts: bool = False) -> Network:
    """The network with parts frozen: stacks by role, embedding, head, `layers:0-15` of the main stack.

    With adapters (`adapts`) the weights are frozen anyway: the layers named here get no adapters either.
    """
    layers = _named_layers(network, names)
    stacks = [_frozen(stack, names, layers if stack is network.main else ()) for stack in network.stacks]
    marked = replace(network, stacks=tuple(stacks))
    if not trains(marked, adapts=adapts):
        given = ",".join(names)
        raise InvalidInput(f"--freeze {given} leaves nothing of {network.name} to train; name fewer")
    return replace(marked, stacks=tuple(_flowing(marked.stacks, adapts)))


def trains(network: Network, *, adapts: bool = False) -> bool:
    """Whether anything is left to train."""
    return any(_trains(stack, adapts) for stack in network.stacks)


def frozen_words(network: Network) -> str:
    """What is frozen, as `freeze` reads it; nothing where all is trained."""
    return ",".join(_words(network))


def is_partly_frozen(network: Network) -> bool:
    """Whether a part was frozen."""
    return bool(frozen_words(network))


def _words(network: Network) -> Iterator[str]:
    for stack in network.stacks:
        layers = [layer for layer in range(stack.layers) if _is_frozen(stack, layer)]
        if stack.is_frozen and len(layers) == stack.layers:
            yield str(stack.role)
        elif stack is network.main:
            runs = groupby(enumerate(layers), key=lambda each: each[1] - each[0])
            for _, run in runs:
                places = [layer for _, layer in run]
                yield f"layers:{places[0]}-{places[-1]}"
    main = network.main
    tables = [stack.embedding for stack in network.stacks if not stack.is_frozen]
    if any(table is not None and table.is_frozen for table in tables):
        yield "embedding"
    if main.head is not None and main.head.is_frozen and not main.is_frozen and not main.head.is_tied:
        yield "head"


def _is_frozen(stack: Stack, layer: int) -> bool:
    return stack.blocks[stack.pattern[layer]].learning is not Learning.TRAINED


def _named_layers(network: Network, names: tuple[str, ...]) -> range:
    """The layers that `layers:a-b` names; every other name has to be a role or an end of this network."""
    main, layers = network.main, range(0)
    allowed = [*dict.fromkeys(str(stack.role) for stack in network.stacks), *ENDS]
    for name in names:
        found = LAYERS.fullmatch(name)
        if found is None and name not in allowed:
            known = ", ".join(allowed)
            raise unknown("part", name, allowed, f"--freeze takes {known} or layers:0-{main.layers - 1}")
        if found is not None:
            first, last = int(found[1]), int(found[2] or found[1])
            if not first <= last < main.layers:
                raise InvalidInput(
                    f"--freeze {name}: there are layers 0 to {main.layers - 1}; write for example layers:0-3"
                )
            layers = range(first, last + 1)
    return layers


def _frozen(stack: Stack, names: tuple[str, ...], layers: range | tuple[int, ...]) -> Stack:
    """The stack with frozen parts marked; a head that is tied to the embedding goes with it."""
    is_whole = str(stack.role) in names
    embedding, head = stack.embedding, stack.head
    if embedding is not None and (is_whole or "embedding" in names):
        embedding = replace(embedding, is_frozen=True)
    if head is not None and (is_whole or (("embedding" if head.is_tied else "head") in names)):
        head = replace(head, is_frozen=True)
    places = range(stack.layers) if is_whole else layers
    marks = [Learning.PASSED if layer in places else Learning.TRAINED for layer in range(stack.layers)]
    stack = replace(stack, embedding=embedding, head=head, is_frozen=is_whole or stack.is_frozen)
    return _marked(stack, marks)


def _marked(stack: Stack, marks: list[Learning]) -> Stack:
    """The stack with a kind of block for each mark that its layers have."""
    kinds: dict[Block, int] = {}
    blocks = (_with(stack.blocks[kind], mark) for kind, mark in zip(stack.pattern, marks, strict=True))
    pattern = tuple(kinds.setdefault(block, len(kinds)) for block in blocks)
    return replace(stack, blocks=tuple(kinds), pattern=pattern)


def _with(block: Block, mark: Learning) -> Block:
    name = block.name.removesuffix(", frozen")
    return replace(block, name=name if mark is Learning.TRAINED else f"{name}, frozen", learning=mark)


def _flowing(stacks: tuple[Stack, ...], adapts: bool) -> Iterator[Stack]:
    """Frozen layers with nothing trained before them have no backward."""
    before: StackRole | None = None
    any_trained = is_trained = False
    for stack in stacks:
        is_stem = stack.role is StackRole.CONVOLUTION and before is StackRole.PROJECTOR
        starts = is_stem or stack.role in START
        is_trained = any_trained if stack.role is StackRole.DECODER else is_trained and not starts
        has_table = stack.embedding is not None and not stack.embedding.is_frozen
        is_trained = is_trained or (has_table and not adapts)
        marks = []
        for kind in stack.pattern:
            is_frozen = stack.blocks[kind].learning is not Learning.TRAINED
            is_trained = is_trained or not is_frozen
            still = Learning.PASSED if is_trained else Learning.STILL
            marks.append(still if is_frozen else Learning.TRAINED)
        is_trained = is_trained or (not adapts and not stack.is_frozen and stack.final_norm_weights > 0)
        any_trained, before = any_trained or is_trained, stack.role
        yield _marked(stack, marks)


def _trains(stack: Stack, adapts: bool) -> bool:
    has_layers = any(stack.blocks[kind].learning is Learning.TRAINED for kind in stack.pattern)
    ends = [each is not None and not each.is_frozen for each in (stack.embedding, stack.head)]
    has_norm = stack.final_norm_weights > 0 and not stack.is_frozen
    return has_layers or (not adapts and (any(ends) or has_norm))
