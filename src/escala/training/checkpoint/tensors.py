"""Every tensor of a run under one name, whatever rank, stage or wrapper holds it. Knows no files.

model.<name>             a parameter or buffer, under its name in the whole model
optimizer.<name>.<key>   what the optimizer keeps for a parameter
replica.<n>.optimizer... the same of a replica that trains alone between meetings, from the second on
group.<name>             the settings of the parameter's group (rate, betas, decay)
random.<rank>            the random states of a rank

DTensors know their place in the whole and everything else is found by name, so that a checkpoint of a
pipeline is read without one, and the other way round.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from escala.errors import InvalidInput

MODEL, OPTIMIZER, GROUP, RANDOM, REPLICA = "model.", "optimizer.", "group.", "random.", "replica."
WRAPPERS: Final = ("_checkpoint_wrapped_module.", "_orig_mod.")
"""What recompute and torch.compile put between the names of a model."""
MEANS: Final = ("params", "foreach", "fused", "capturable", "differentiable")
"""Settings of a group that say how to compute, not what: those of the running optimizer stay."""


def model_tensors(chunks: tuple[nn.Module, ...]) -> dict[str, torch.Tensor]:
    """Parameters, kept buffers and scales of four bits by their names in the whole model."""
    found: dict[str, torch.Tensor] = {}
    for chunk in chunks:
        for name, value in _bare(chunk).state_dict().items():
            if not isinstance(value, torch.Tensor):
                raise InvalidInput(f"{name} is no tensor; a checkpoint holds tensors only")
            found[f"{MODEL}{plain(name)}"] = value
        found.update(_scales(chunk))
    return found


def _scales(chunk: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What bitsandbytes keeps beside a weight of four bits; FSDP parts it from the weight, not its module."""
    for name, module in _bare(chunk).named_modules():
        state = getattr(module, "quant_state", None)
        if state is not None:
            for key, value in state.as_dict(packed=True).items():
                yield f"{MODEL}{plain(f'{name}.weight.{key}')}", value


def names_of(chunks: tuple[nn.Module, ...]) -> dict[nn.Parameter, list[str]]:
    """All names of each parameter: a tied one has several."""
    names: dict[nn.Parameter, list[str]] = defaultdict(list)
    for chunk in chunks:
        for name, parameter in _bare(chunk).named_parameters(remove_duplicate=False):
            names[parameter].append(plain(name))
    return dict(names)


def plain(name: str) -> str:
    """A name without what wrappers add."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def of_replica(replica: int | None) -> str:
    """What names of an optimizer's values begin with; the first replica's are those that any layout reads."""
    return f"{REPLICA}{replica}.{OPTIMIZER}" if replica else OPTIMIZER


def optimizer_values(
    optimizer: Optimizer, names: Mapping[nn.Parameter, list[str]], begin: str
) -> dict[str, Any]:
    """What the optimizer keeps, under all names of each parameter."""
    found: dict[str, Any] = {}
    for parameter, kept in states(optimizer).items():
        for key, value in kept.items():
            if value is not None:
                found.update({f"{begin}{name}.{key}": value for name in names[parameter]})
    return found


def states(optimizer: Any) -> dict[nn.Parameter, dict[str, Any]]:
    """The states of this rank; ZeroRedundancyOptimizer keeps those of its own share in an inner optimizer."""
    return getattr(optimizer, "optim", optimizer).state


def group_values(optimizer: Optimizer, names: Mapping[nn.Parameter, list[str]]) -> dict[str, Any]:
    """The settings of each parameter's group."""
    found: dict[str, Any] = {}
    for group in optimizer.param_groups:
        settings = {key: _number(value) for key, value in group.items() if key not in MEANS}
        for parameter in group["params"]:
            found.update({f"{GROUP}{name}": settings for name in names[parameter]})
    return found


def set_groups(
    optimizer: Optimizer, names: Mapping[nn.Parameter, list[str]], read: Mapping[str, Any]
) -> set[str]:
    """Give each group its settings of the checkpoint; the result names those that were others."""
    changed: set[str] = set()
    for group in optimizer.param_groups:
        for key, value in read[f"{GROUP}{names[group['params'][0]][0]}"].items():
            if _number(group.get(key)) != value:
                changed.add(key)
            if isinstance(group.get(key), torch.Tensor):
                group[key].fill_(value)
            else:
                group[key] = value
    return changed


def empty_states(
    optimizer: Optimizer, names: Mapping[nn.Parameter, list[str]], saved: Mapping[str, Any]
) -> dict[nn.Parameter, dict[str, Any]]:
    """What the checkpoint keeps for the parameters of this rank's optimizer, as empty places to read into."""
    kept: dict[str, dict[str, Any]] = defaultdict(dict)
    for full, meta in saved.items():
        if full.startswith(OPTIMIZER):
            name, _, key = full.removeprefix(OPTIMIZER).rpartition(".")
            kept[name][key] = meta
    return {
        parameter: {key: _place(parameter, group, meta) for key, meta in kept[names[parameter][0]].items()}
        for parameter, group in _parameters(getattr(optimizer, "optim", optimizer))
    }


def random_states() -> dict[str, Any]:
    """The states of every random generator of this process."""
    found = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 # of others' code, which uses it
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def set_random_states(found: Mapping[str, Any]) -> None:
    """Put the random generators of this process where they were."""
    random.setstate(found["python"])
    np.random.set_state(found["numpy"])  # noqa: NPY002 # of others' code, which uses it
    torch.set_rng_state(found["torch"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])


def seed_afresh(seed: int, step: int) -> None:
    """Begin the random numbers of this rank anew, otherwise than at step 0."""
    fresh = int(np.random.SeedSequence((seed, step)).generate_state(1)[0])
    random.seed(fresh)
    np.random.seed(fresh)  # noqa: NPY002 # of others' code, which uses it
    torch.manual_seed(fresh)


def _bare(chunk: nn.Module) -> nn.Module:
    return chunk.module if isinstance(chunk, DistributedDataParallel) else chunk


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _parameters(optimizer: Optimizer) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter, group


def _place(
    parameter: nn.Parameter, group: Mapping[str, Any], meta: TensorStorageMetadata | BytesStorageMetadata
) -> Any:
    """An empty value where one state is read into: sharded as its parameter is, where it has its shape."""
    if not isinstance(meta, TensorStorageMetadata):
        return None
    dtype = meta.properties.dtype
    if meta.size == parameter.shape:
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
    if meta.size == torch.Size(()):
        is_counted_there = group.get("capturable") or group.get("fused")
        return torch.zeros((), dtype=dtype, device=parameter.device if is_counted_there else "cpu")
    if isinstance(parameter, DTensor):
        raise InvalidInput(
            f"the optimizer keeps a state of shape {list(meta.size)} for a parameter of shape "
            f"{list(parameter.shape)}, which cannot be sharded anew; resume on the layout that saved it"
        )
    return torch.zeros(meta.size, dtype=dtype, device=parameter.device)
