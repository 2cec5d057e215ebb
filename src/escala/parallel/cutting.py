"""A module cut at its blocks into stages, with the names of the whole. Knows parts; knows no schedule.

A stage is the same class with the parts of other stages replaced by modules that pass the hidden stream on,
so that no model needs code of its own here.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import torch
from torch import nn

from escala.errors import InvalidInput
from escala.model.plan import Plan, Schedule
from escala.model.stages import deal, rank_stages
from escala.parallel.absent import Absent, NoPositions
from escala.parallel.chains import Shapes, chain_reasons
from escala.parallel.formats import AUTOCAST
from escala.parallel.parts import Parts

CHECKED_TOKENS: Final = 4
"""Of the row that a cut is tried on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """One weight that two stages use: the name that counts, and the name of the last stage's own copy."""

    name: str
    duplicate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages of one rank: their numbers among all and the module of each, in that order.

    `width` is that of the hidden stream between stages; `ties` are weights of the first and the last one.
    `shapes` are those of the streams of a chain, which has no such width.
    """

    numbers: tuple[int, ...]
    chunks: tuple[nn.Module, ...]
    count: int
    width: int
    ties: tuple[Tie, ...]
    shapes: Shapes | None = None

    def held(self) -> tuple[tuple[int, nn.Module], ...]:
        """Numbers with modules."""
        return tuple(zip(self.numbers, self.chunks, strict=True))


def cut(module: Any, parts: Parts, plan: Plan, place: int) -> Stages:
    """The stages of the pipeline rank at a place; parts are moved, not copied. The whole at degree 1."""
    if plan.pp == 1:
        return Stages(numbers=(0,), chunks=(module,), count=1, width=0, ties=())
    names = stage_names(parts, plan)
    if not parts.is_chain:
        check_cut(module, parts, names)
    shapes = Shapes(module, names) if parts.is_chain else None
    ties = _ties(module, names)
    numbers = rank_stages(place, plan.pp, plan.virtual_stages, plan.schedule)
    for tie in ties:
        _untie(module, tie)
    chunks = tuple(chunk_of(module, parts, names[number]) for number in numbers)
    for number, chunk in zip(numbers, chunks, strict=True):
        ends = {"is_first": number == 0, "is_last": number == len(names) - 1}
        if parts.is_chain:
            as_link(chunk, stream_format(plan), **ends)
        else:
            as_stage(chunk, **ends)
    return Stages(
        numbers=tuple(numbers),
        chunks=chunks,
        count=len(names),
        width=0 if parts.is_chain else _width(module, parts),
        ties=ties,
        shapes=shapes,
    )


def stage_names(parts: Parts, plan: Plan) -> list[tuple[str, ...]]:
    """Names of the parts of every stage, in order."""
    layers = deal(len(parts.blocks), plan.pp * plan.virtual_stages, plan.split, plan.stage_layers)
    bounds = (0, *accumulate(layers))
    names = [parts.blocks[first:last] for first, last in pairwise(bounds)]
    names[0] = (*parts.first, *names[0])
    names[-1] = (*names[-1], *parts.last)
    return names


def chunk_of(module: nn.Module, parts: Parts, names: Sequence[str]) -> Any:
    """The module with the named parts only: what holds parts is copied, parts are not."""
    memo: dict[int, Any] = {}
    for name in (*parts.first, *parts.blocks, *parts.last):
        part = module.get_submodule(name)
        missing = NoPositions() if name in parts.first and not parts.is_chain else Absent()
        memo[id(part)] = part if name in names else missing
    return copy.deepcopy(module, memo)


def as_stage(chunk: Any, *, is_first: bool, is_last: bool) -> None:
    """Call a chunk with what the stage before it made, and let it answer with what the next one needs."""
    whole = chunk.forward if is_last else getattr(chunk, chunk.base_model_prefix)
    word = "input_ids" if is_first else "inputs_embeds"

    def forward(given: torch.Tensor, **words: Any) -> torch.Tensor:
        if not is_first:
            given = Dense.apply(given)
        made = whole(**{word: given}, **words)
        found = getattr(made, "logits" if is_last else "last_hidden_state", made)
        if len(found) != len(given):  # GPT-2 takes tokens for rows where tensor ranks have some of them each
            found = found.view(len(given), -1, found.shape[-1])
        return found if is_last else sendable(found)

    chunk.forward = forward


def as_link(chunk: Any, stream: torch.dtype, *, is_first: bool, is_last: bool) -> None:
    """Call a chunk of a chain with what the one before it made, and let it answer in the stream's format."""
    whole = chunk.forward

    def forward(given: torch.Tensor, **_: Any) -> torch.Tensor:
        found = whole(given if is_first else Dense.apply(given))
        return found if is_last else sendable(found.to(stream))

    chunk.forward = forward


def stream_format(plan: Plan) -> torch.dtype:
    """The number format between stages: that of gathered weights under FSDP, else fp32."""
    return AUTOCAST.get(plan.precision, torch.float32) if plan.zero >= 2 else torch.float32


def sendable(stream: torch.Tensor) -> torch.Tensor:
    """A stream that is read as it lies in memory, and that a schedule may detach, which a view forbids."""
    return stream.clone() if stream._is_view() else stream.contiguous()


class Dense(torch.autograd.Function):
    """The same tensor; its gradient is made contiguous, since a message is read as it lies in memory."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        """The stream as it came."""
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """What is sent back."""
        return gradient.contiguous()


def check_cut(module: Any, parts: Parts, names: Sequence[Sequence[str]]) -> None:
    """Raise where stages one after the other are not the whole module: tried on a few tokens.

    A model may do more with the stream than its parts do, for example scale it between them.
    """
    kind = type(module).__name__
    known = (*parts.first, *parts.blocks, *parts.last)
    outside = [name for name, _ in module.named_parameters() if not name.startswith(tuple(_inside(known)))]
    if outside:
        raise InvalidInput(f"{kind} cannot be cut into stages: {outside[0]} belongs to no part of it")
    was_training = module.training
    module.eval()
    with torch.no_grad():
        tokens = torch.arange(CHECKED_TOKENS, device=next(module.parameters()).device)[None]
        whole, stream = module(input_ids=tokens), tokens
        for place, each in enumerate(names):
            chunk = chunk_of(module, parts, each)
            as_stage(chunk, is_first=place == 0, is_last=place == len(names) - 1)
            stream = chunk(stream)
    module.train(was_training)
    if not torch.equal(getattr(whole, "logits", whole), stream):
        raise InvalidInput(f"{kind} cannot be cut into stages: together they would not give its answer")


def stage_reasons(module: nn.Module, parts: Parts, plan: Plan) -> Iterator[str]:
    """Why the stages of a plan cannot be run; none without a pipeline."""
    if plan.pp == 1:
        return
    name, count = type(module).__name__, plan.pp * plan.virtual_stages
    if not parts.is_chain and not (parts.takes_documents and parts.first):
        yield f"{name} is no language model or plain sequence that can be cut into stages; set pp to 1"
    if parts.is_chain:
        yield from chain_reasons(module, plan)
    if plan.schedule is Schedule.NONE:
        yield "a pipeline needs a schedule; choose gpipe, one_f_one_b, interleaved or zero_bubble_v"
    wanted = {Schedule.GPIPE: 1, Schedule.ONE_F_ONE_B: 1, Schedule.ZERO_BUBBLE_V: 2}.get(plan.schedule)
    if wanted not in (None, plan.virtual_stages):
        yield f"{plan.schedule.name.lower()} has {wanted} stages a rank, not {plan.virtual_stages}"
    layers = deal(len(parts.blocks), count, plan.split, plan.stage_layers)
    if len(layers) != count or sum(layers) != len(parts.blocks) or min(layers) < 0:
        said = ", ".join(map(str, layers))
        yield f"{len(parts.blocks)} blocks cannot be dealt to {count} stages as {said}"
    yield from _micro_batch_reasons(plan)
    if plan.compile and plan.schedule is Schedule.ZERO_BUBBLE_V:
        yield "zero_bubble_v takes backward apart, which compiled blocks do not allow; set compile to off"


def _micro_batch_reasons(plan: Plan) -> Iterator[str]:
    """What schedules of PyTorch ask of the number of micro-batches."""
    count = plan.micro_batches
    if plan.schedule is Schedule.ONE_F_ONE_B and count < plan.pp:
        yield f"one_f_one_b needs as many micro-batches as stages, {plan.pp}, and has {count}"
    rounds = max(count // plan.pp, 1)
    if plan.schedule is Schedule.INTERLEAVED and count % rounds:
        yield f"interleaved deals {count} micro-batches to {rounds} rounds; choose a multiple of pp={plan.pp}"


def _inside(names: Sequence[str]) -> Iterator[str]:
    return (f"{name}." for name in names)


def _ties(module: nn.Module, stages: Sequence[Sequence[str]]) -> tuple[Tie, ...]:
    """Weights that parts of two stages share; only the first and the last may."""
    stage_of = {name: place for place, names in enumerate(stages) for name in names}
    first: dict[int, str] = {}
    ties = []
    for name, parameter in module.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(parameter), name)
        places = _stage(other, stage_of), _stage(name, stage_of)
        if places[0] == places[1]:
            continue
        if sorted(places) != [0, len(stages) - 1]:
            raise InvalidInput(f"{other} and {name} are one weight of stages that are not the first and last")
        ties.append(Tie(name=other, duplicate=name))
    return tuple(ties)


def _stage(parameter: str, stage_of: Mapping[str, int]) -> int:
    return next(place for name, place in stage_of.items() if parameter.startswith(f"{name}."))


def _untie(module: nn.Module, tie: Tie) -> None:
    owner, _, name = tie.duplicate.rpartition(".")
    copied = module.get_parameter(tie.name).detach().clone()
    setattr(module.get_submodule(owner), name, nn.Parameter(copied))


def _width(module: Any, parts: Parts) -> int:
    return int(module.get_submodule(parts.first[0]).embedding_dim)
