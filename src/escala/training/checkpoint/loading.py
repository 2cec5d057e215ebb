"""Reads a checkpoint into the parts of any layout. Knows files and collectives.

What does not fit is found in the metadata, on all ranks together, before anything is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from escala.errors import InvalidInput
from escala.training.checkpoint.facts import Facts, read_facts
from escala.training.checkpoint.planners import LoadPlanner
from escala.training.checkpoint.saving import expect_one_process, kind_of
from escala.training.checkpoint.state import Resumed, TrainState
from escala.training.checkpoint.tensors import (
    GROUP,
    MODEL,
    RANDOM,
    REPLICA,
    empty_states,
    model_tensors,
    names_of,
    of_replica,
    seed_afresh,
    set_groups,
    set_random_states,
    states,
)

QUIET: Final = ("lr", "initial_lr")
"""Settings that a schedule changes at every step: no news that they differ."""


def load(folder: Path, state: TrainState) -> Resumed:
    """Read a whole checkpoint into the chunks and the optimizer, in place; the counters come back.

    Every rank calls it. The layout may be another than the one that saved; then, and with another number of
    ranks, random numbers begin anew from the rank's seed and the step, which the notes say.
    """
    facts, saved, names = read_facts(folder), _metadata(folder), names_of(state.chunks)
    is_same = _is_same_layout(state, facts)
    _agree(folder, (*_differences(state, facts, saved), *_untrained(state, saved, names)))
    kept = empty_states(state.optimizer, names, saved)
    has_own = any(name.startswith(REPLICA) for name in saved)
    begin = of_replica(state.replica if is_same and has_own else None)
    wanted = _wanted(state, names, kept, begin)
    random = f"{RANDOM}{_rank()}"
    if is_same:
        wanted[random] = None
    _read(folder, wanted)
    for parameter, empty in kept.items():
        states(state.optimizer)[parameter] = {
            key: wanted[_key(begin, names, parameter, key)] for key in empty
        }
    notes = _settings_notes(set_groups(state.optimizer, names, wanted))
    notes = (*notes, *_replica_notes(state, is_same=is_same, has_own=has_own))
    if is_same:
        set_random_states(wanted[random])
    else:
        seed_afresh(state.seed, facts.step)
        notes = (*notes, _afresh(facts))
    return Resumed(state=_counted(state, facts), notes=notes)


def _counted(state: TrainState, facts: Facts) -> TrainState:
    """The counters as they were, also those of the scaler."""
    if state.scaler is not None and facts.scaler:
        state.scaler.factor, state.scaler.quiet_steps = facts.scaler["factor"], facts.scaler["quiet_steps"]
    losses = tuple(float("nan") if loss is None else loss for loss in facts.losses)
    return replace(state, step=facts.step, samples=facts.samples, losses=losses)


def _wanted(
    state: TrainState,
    names: Mapping[nn.Parameter, list[str]],
    kept: Mapping[nn.Parameter, dict[str, Any]],
    begin: str,
) -> dict[str, Any]:
    """Where everything that this rank needs is read into."""
    wanted: dict[str, Any] = dict(model_tensors(state.chunks))
    for parameter, empty in kept.items():
        wanted.update({_key(begin, names, parameter, key): value for key, value in empty.items()})
    for group in state.optimizer.param_groups:
        wanted[f"{GROUP}{names[group['params'][0]][0]}"] = None
    return wanted


def _key(begin: str, names: Mapping[nn.Parameter, list[str]], parameter: nn.Parameter, key: str) -> str:
    return f"{begin}{names[parameter][0]}.{key}"


def _metadata(folder: Path) -> dict[str, Any]:
    try:
        return dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{folder} is damaged ({error}); resume from another checkpoint") from None


def _read(folder: Path, wanted: dict[str, Any]) -> None:
    # a planner that flattens reads what is no tensor into a copy
    planner = LoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    reader = dcp.FileSystemReader(folder)
    try:
        expect_one_process()
        dcp.load(wanted, storage_reader=reader, planner=planner, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        _, (cause, _) = min(error.failures.items())
        raise InvalidInput(f"{folder} is damaged ({cause}); resume from another checkpoint") from error


def _agree(folder: Path, differences: Sequence[str]) -> None:
    """Raise on all ranks what any rank found."""
    mine = next(iter(differences), None)
    found = [mine]
    if dist.is_initialized():
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine)
    for rank, difference in enumerate(found):
        if difference is not None:
            what = f"{difference} (rank {rank})"
            raise InvalidInput(f"{folder} cannot be resumed: {what}; start in a new folder")


def _differences(state: TrainState, facts: Facts, saved: Mapping[str, Any]) -> Iterator[str]:
    """What of the network and of the optimizer is another; all ranks have to ask, and to hear all of it."""
    if kind_of(state.optimizer) != facts.optimizer:
        yield f"its optimizer was {facts.optimizer} and this run has {kind_of(state.optimizer)}"
    mine = model_tensors(state.chunks)
    for name, tensor in mine.items():
        yield from _difference(name, tensor, saved)
    everyone = _all_names(mine)
    left = sorted(name for name in saved if name.startswith(MODEL) and name not in everyone)
    if left:
        more = f" and {len(left) - 1} more" if left[1:] else ""
        yield f"it has {left[0].removeprefix(MODEL)}{more}, which this network has not"


def _untrained(
    state: TrainState, saved: Mapping[str, Any], names: Mapping[nn.Parameter, list[str]]
) -> Iterator[str]:
    for group in state.optimizer.param_groups:
        for parameter in group["params"]:
            if f"{GROUP}{names[parameter][0]}" not in saved:
                yield f"its optimizer did not train {names[parameter][0]}"


def _difference(name: str, tensor: torch.Tensor, saved: Mapping[str, Any]) -> Iterator[str]:
    meta, short = saved.get(name), name.removeprefix(MODEL)
    if not isinstance(meta, TensorStorageMetadata):
        yield f"it has no {short}, which this network has"
    elif meta.size != tensor.shape:
        yield f"its {short} has the shape {list(meta.size)} and this network's {list(tensor.shape)}"
    elif meta.properties.dtype != tensor.dtype:
        yield f"its {short} is kept as {meta.properties.dtype} and this network's as {tensor.dtype}"


def _all_names(mine: Mapping[str, Any]) -> set[str]:
    if not dist.is_initialized():
        return set(mine)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, list(mine))
    return {name for names in found for name in names}


def _is_same_layout(state: TrainState, facts: Facts) -> bool:
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    return ranks == facts.ranks and state.layout == dict(facts.layout)


def _afresh(facts: Facts) -> str:
    return (
        f"random numbers (dropout) begin anew: {facts.ranks} ranks of another layout saved theirs "
        f"at step {facts.step}"
    )


def _settings_notes(changed: set[str]) -> tuple[str, ...]:
    told = sorted(changed - set(QUIET))
    return (f"the optimizer's {', '.join(told)} of the checkpoint are used, not this run's",) if told else ()


def _replica_notes(state: TrainState, *, is_same: bool, has_own: bool) -> tuple[str, ...]:
    """Replicas whose optimizers had gone apart, and do not go on with their own."""
    if has_own and not (is_same and state.replica is not None):
        return (
            "of the replicas' own optimizers the first one's state goes on in all: the layout is another",
        )
    if state.replica is not None and not has_own:
        return ("the checkpoint has one optimizer's state, with which all replicas go on",)
    return ()


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
