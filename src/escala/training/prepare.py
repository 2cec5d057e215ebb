"""A plan inside a loop that somebody else wrote: model, optimizer and loader made ready, nothing more.

model, optimizer, loader = escala.prepare(plan, model, optimizer, loader)
for batch in loader:
loss = model(**batch).loss
loss.backward()
optimizer.step()
optimizer.zero_grad()
"""

import inspect
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from escala.errors import InvalidInput
from escala.model.plan import Plan, Precision
from escala.parallel.formats import AUTOCAST
from escala.parallel.mesh import CONTEXT, DATA, SHARD, Mesh, mesh_of
from escala.parallel.parallelize import Parallel, parallelize
from escala.training.launch.join import BACKENDS, join
from escala.training.launch.place import place_of


def prepare(
    plan: Plan,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    *,
    blocks: tuple[str, ...] | None = None,
) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    """The model under the plan, an optimizer of the same kind over its parts, and each rank's own samples.

    Start the script with torchrun, as many processes as the plan has devices; the process group is made
    where there is none. Every rank takes its own part of the set, in batches of the loader's size; loss and
    gradients are means over ranks, as DDP's are. Data-parallel plans of every kind, recompute, compile and
    16-bit formats can run in such a loop. Other plans need a loss and a step of their own and are refused:
    `escala train` and `escala.parallel.step` have them.
    """
    _refuse(plan)
    device = next(model.parameters()).device
    mesh = mesh_of(plan, _joined(plan, device))
    names = {parameter: name for name, parameter in model.named_parameters()}
    parallel = parallelize(model, plan, mesh, blocks=blocks)
    called = _in_format(parallel, parallel.called[0])
    return called, _optimizer(optimizer, names, parallel), _loader(loader, mesh)


def _refuse(plan: Plan) -> None:
    for is_so, what in (
        (plan.pp > 1, "a pipeline"),
        (plan.tp * plan.ep > 1, "tensor or expert parallelism"),
        (plan.precision is Precision.FP16, "fp16, whose gradients are scaled,"),
        (plan.cp > 1, "context parallelism"),
        (plan.local_steps > 1, "local steps"),
    ):
        if is_so:
            raise InvalidInput(
                f"{what} cannot run in a loop of one's own; use `escala train`, or another plan"
            )


def _joined(plan: Plan, device: torch.device) -> torch.device:
    """The device of this rank, which is in the process group afterwards."""
    if not dist.is_initialized():
        place = place_of(os.environ)
        if place.ranks != plan.devices:
            raise InvalidInput(
                f"the plan has {plan.devices} devices and {place.ranks} processes run; "
                f"start the script with torchrun --nproc-per-node {plan.devices}"
            )
        join(place, BACKENDS[device.type])
    return device


def _in_format(parallel: Parallel, called: nn.Module) -> nn.Module:
    """Under autocast where the plan has 16-bit products and FSDP does not cast weights itself."""
    kind = AUTOCAST.get(parallel.plan.precision)
    if kind is not None and parallel.plan.zero < 2:
        inside = parallel.chunks[0]
        inside.forward = torch.autocast(parallel.mesh.device.type, dtype=kind)(inside.forward)
    return called


def _optimizer(
    given: torch.optim.Optimizer, names: dict[nn.Parameter, str], parallel: Parallel
) -> torch.optim.Optimizer:
    """The same class with the same settings over what this rank holds; groups stay, by name."""
    held = dict(parallel.chunks[0].named_parameters())
    groups = []
    for group in given.param_groups:
        known = [names[each] for each in group["params"] if each in names]
        if len(known) < len(group["params"]):
            raise InvalidInput("the optimizer has parameters that the model has not; make it of this model")
        groups.append({**group, "params": [held[name] for name in known]})
    if any(given.state.values()):
        raise InvalidInput("the optimizer has made steps already; prepare it before the first one")
    if parallel.plan.zero == 1 and parallel.mesh.size(SHARD, CONTEXT) > 1:
        return _sharded(given, groups, parallel.mesh)
    return type(given)(groups)


def _sharded(given: torch.optim.Optimizer, groups: list[dict[str, Any]], mesh: Mesh) -> torch.optim.Optimizer:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # importing it warns of what it compiles

    taken = inspect.signature(type(given)).parameters  # defaults also hold what is no argument
    settings = {name: value for name, value in given.defaults.items() if name in taken}
    return ZeroRedundancyOptimizer(groups, type(given), process_group=mesh.group(SHARD, CONTEXT), **settings)


def _loader(given: DataLoader[Any], mesh: Mesh) -> DataLoader[Any]:
    """The same loader over this rank's part of its set, in another order each epoch if it was shuffled."""
    if mesh.size(*DATA) == 1:
        return given
    shuffles = isinstance(given.sampler, torch.utils.data.RandomSampler)
    sampler: DistributedSampler[Any] = DistributedSampler(
        given.dataset, mesh.size(*DATA), mesh.place(*DATA), shuffle=shuffles, drop_last=given.drop_last
    )
    return DataLoader(
        given.dataset,
        batch_size=given.batch_size,
        sampler=sampler,
        num_workers=given.num_workers,
        collate_fn=given.collate_fn,
        pin_memory=given.pin_memory,
        drop_last=given.drop_last,
    )
