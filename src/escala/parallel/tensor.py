"""Tensor and sequence parallelism: matrices split over ranks as the network's own plan of words says.

Weights become DTensors; modules see their rank's part as a plain tensor, and the hidden stream changes its
layout where a divided part begins and ends: once before attention or feed-forward, once after.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from escala.parallel.layouts import Stream
from escala.parallel.mesh import TENSOR, Mesh
from escala.parallel.parts import Parts
from escala.parallel.weights import View, Weights, around
from escala.parallel.words import DIVIDING, PIECES, Word, counts, is_experts, worded

STREAM: Final = "hidden_states"
"""How attention is told the stream where it is told by name."""


def split_tensors(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Split a chunk over its tensor ranks; nothing at degree 1."""
    if mesh.plan.tp > 1:
        stream = Stream(mesh=mesh.axis(TENSOR), splits_tokens=mesh.plan.sp)
        split_by_words(chunk, parts.tensor, stream)
        if stream.splits_tokens:
            around(chunk, _with_positions(stream))


def split_by_words(chunk: nn.Module, plan: Mapping[str, str], stream: Stream) -> None:
    """Split the modules that have a word; weights of all others stay whole on each rank, as DTensors too."""
    weights = Weights(stream.mesh)
    for module, attribute in counts(chunk, plan):
        setattr(module, attribute, _share(getattr(module, attribute), stream))
    found = [(module, word) for _, module, word in worded(chunk, plan) if word != Word.EXPERTS]
    for part in divided_parts(chunk, plan):
        around(part, _whole_first(stream))
    for module, word in found:
        SPLITS[Word(word)](module, weights, stream)
    _keep_whole(chunk, weights, stream)
    _check(chunk, stream)


def divided_parts(chunk: nn.Module, plan: Mapping[str, str]) -> Iterator[nn.Module]:
    """Modules whose children divide what they are given: attention, feed-forward, shared experts."""
    dividing = {name.rpartition(".")[0] for name, _, word in worded(chunk, plan) if word in DIVIDING}
    return (module for name, module in chunk.named_modules() if name in dividing)


def _colwise(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Outputs are divided: each rank has some rows of W in y = W x + b."""
    weights.lay(module, "weight", (Shard(int(_is_transposed(module))),))
    if "bias" in _own(module):
        weights.lay(module, "bias", (Shard(0),))
    _count_outputs(module, stream)


def _fused(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Outputs of each piece are divided: a rank has its heads' queries, keys and values.

    The bias stays whole, for a packed dim cannot be sharded once more.
    """
    weights.lay(module, "weight", (_StridedShard(int(_is_transposed(module)), split_factor=PIECES),))
    if "bias" in _own(module):
        share = View(gradients=(Partial(),), pieces=(PIECES, stream.ranks, stream.place))
        weights.lay(module, "bias", (Replicate(),), share)
    _count_outputs(module, stream)


def _rowwise(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Inputs are divided: each rank makes a partial sum, and the bias is added to the sum of all."""
    weights.lay(module, "weight", (Shard(int(not _is_transposed(module))),))
    has_bias, real = "bias" in _own(module), View(gradients=(stream.gradient,))
    if has_bias:
        weights.lay(module, "bias", (Replicate(),), replace(real, is_hidden=True))

    def add_up(forward: Callable[..., torch.Tensor], inner: torch.Tensor) -> torch.Tensor:
        total = stream.summed(forward(inner))
        bias = real.of(module._parameters["bias"]) if has_bias else None
        return total if bias is None else total + bias

    around(module, add_up)


def _alike(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Whole weights on divided work, such as norms of heads: gradients are summed."""
    for name in _own(module):
        weights.lay(module, name, (Replicate(),), View(gradients=(Partial(),)))


def _embedding(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Rows of the vocabulary are divided: a rank looks up its own, others are zero, and all are summed."""
    first, count = rows(len(module.weight), stream)
    weights.lay(module, "weight", (Shard(0),))
    ignored = module.padding_idx
    module.padding_idx = ignored - first if ignored is not None and 0 <= ignored - first < count else None

    def look_up(forward: Callable[..., torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        outside = (tokens < first) | (tokens >= first + count)
        found = forward((tokens - first).masked_fill(outside, 0))
        return stream.summed(found.masked_fill(outside[..., None], 0.0))

    around(module, look_up)


def _positions(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Vectors of all positions on each rank, which takes those of its tokens."""
    _replicate(module, weights, stream)
    around(module, lambda forward, places: stream.own(forward(places)))


def _last_norm(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """The norm before the head, which is given all tokens."""
    _replicate(module, weights, stream)
    around(module, lambda forward, hidden: stream.whole(forward(hidden)))


def _head(module: nn.Module, weights: Weights, stream: Stream) -> None:
    """Logits of a rank's part of the vocabulary, told as a DTensor."""
    outputs = len(module.weight)
    _colwise(module, weights, stream)

    def told(forward: Callable[..., torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
        shape = torch.Size((*hidden.shape[:-1], outputs))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            forward(hidden),
            stream.mesh,
            [Shard(hidden.ndim - 1)],
            run_check=False,
            shape=shape,
            stride=stride,
        )

    around(module, told)


SPLITS: Final[Mapping[Word, Callable[[nn.Module, Weights, Stream], None]]] = {
    Word.COLWISE: _colwise,
    Word.ROWWISE: _rowwise,
    Word.FUSED: _fused,
    Word.ALIKE: _alike,
    Word.EMBEDDING: _embedding,
    Word.POSITIONS: _positions,
    Word.LAST_NORM: _last_norm,
    Word.HEAD: _head,
}


def _keep_whole(chunk: nn.Module, weights: Weights, stream: Stream) -> None:
    """Weights that nobody has split: alike on all ranks, gradients partial where ranks see some tokens."""
    for module in chunk.modules():
        plain = any(not isinstance(each, DTensor) for each in module._parameters.values() if each is not None)
        if plain and not is_experts(module):
            _replicate(module, weights, stream)


def _replicate(module: nn.Module, weights: Weights, stream: Stream) -> None:
    for name in _own(module):
        weights.lay(module, name, (Replicate(),), View(gradients=(stream.gradient,)))


def _whole_first(stream: Stream) -> Callable[..., Any]:
    """Give a module all tokens of the stream, its first argument or the one told by name."""

    def call(forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if given:
            return forward(stream.whole(given[0]), *given[1:], **named)
        return forward(**{**named, STREAM: stream.whole(named[STREAM])})

    return call


def _with_positions(stream: Stream) -> Callable[..., Any]:
    """Tell a language model the positions of all tokens, which it cannot count where it sees some."""

    def call(forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if named.get("position_ids") is None:
            tokens = given[0] if given else named.get("input_ids")
            known = named["inputs_embeds"] if tokens is None else tokens
            count = known.shape[1] * (stream.ranks if tokens is None else 1)
            named["position_ids"] = torch.arange(count, device=known.device)[None]
        return forward(*given, **named)

    return call


def _own(module: nn.Module) -> list[str]:
    return [name for name, each in module._parameters.items() if each is not None]


def _is_transposed(module: nn.Module) -> bool:
    """Whether a linear map holds (inputs, outputs), as GPT-2's do in transformers."""
    return type(module).__name__ == "Conv1D"


def _count_outputs(module: nn.Module, stream: Stream) -> None:
    if _is_transposed(module):
        module.nf = _share(module.nf, stream)


def _share(count: int, stream: Stream) -> int:
    assert count % stream.ranks == 0, (count, stream.ranks)
    return count // stream.ranks


def rows(total: int, stream: Stream) -> tuple[int, int]:
    """First of a rank's rows and their number: as many on each rank, fewer on the last ones."""
    most = -(-total // stream.ranks)
    first = min(stream.place * most, total)
    return first, min(most, total - first)


def _check(chunk: nn.Module, stream: Stream) -> None:
    """Everything is a DTensor on the tensor ranks, save experts, which are dealt next."""
    for module in chunk.modules():
        for name in () if is_experts(module) else _own(module):
            held = module._parameters[name]
            assert isinstance(held, DTensor), (module, name)
            assert held.device_mesh == stream.mesh, (module, name)
            assert isinstance(getattr(type(module), name, None), property), (module, name)
