"""Layers that predict further tokens (MTP), added to a network that is trained with them."""

from dataclasses import replace

from escala.errors import InvalidInput
from escala.model.network import (
    Attention,
    Block,
    Experts,
    FeedForward,
    Linear,
    Network,
    Part,
    Stack,
    StackRole,
)

OWN_NORMS = 3
"""Norms of a prediction layer beside those of its block: of the stream, of the next token, of the output."""


def with_predictions(network: Network, count: int) -> Network:
    """The network with so many layers more, each for one token further, and the head applied as often more.

    A layer maps the stream beside the embedding of the next token (2 hidden) to the stream, and is one block
    as the network's last that attends; embedding and head are those of the network.
    Source: DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437), section 2.2.
    """
    if count == 0:
        return network
    stack = network.main
    if stack.role is not StackRole.DECODER or stack.head is None or not stack.head.is_per_token:
        raise InvalidInput(f"{network.name} has no head for each token; only decoders predict further tokens")
    blocks = (*stack.blocks, _prediction(network, stack))
    longer = replace(
        stack,
        blocks=blocks,
        pattern=(*stack.pattern, *(len(stack.blocks) for _ in range(count))),
        head=replace(stack.head, predictions=1 + count),
    )
    return replace(network, stacks=(*network.stacks[:-1], longer))


def _prediction(network: Network, stack: Stack) -> Block:
    """One map of twice the hidden width, then attention and feed-forward as last in the network."""
    rows = [stack.blocks[kind] for kind in reversed(stack.pattern)]
    block = next((each for each in rows if any(isinstance(p, Attention) for p in each.parts)), None)
    if block is None:
        raise InvalidInput(f"{network.name} has no attention, by which layers predict further tokens")
    parts = (*block.parts, *_feeds(rows)) if len(block.parts) == 1 else block.parts
    map_in = Linear(inputs=2 * stack.hidden, outputs=stack.hidden, has_bias=False, name="prediction")
    norms = max(block.norms, len(parts)) + OWN_NORMS
    return replace(block, name=f"prediction, {block.name}", parts=(map_in, *parts), norms=norms)


def _feeds(rows: list[Block]) -> tuple[Part, ...]:
    """The last experts, else the last feed-forward, that are a layer of their own."""
    for kind in (Experts, FeedForward):
        found = [each.parts for each in rows if isinstance(each.parts[0], kind)]
        if found:
            return found[0]
    return ()
