"""What a writer is given, what it can express, and what it gives back. Knows no target.

A target's module `writing` has TARGET and `write(order)`; `lacking` says of each plan what no file of the
target can express, from the abilities that the target declares. A tool with several targets has a module
`writing_NAME` for each; all such modules are found by their names (emitting.targets).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from escala.model.freezing import frozen_words
from escala.model.plan import (
    Compile,
    ContextKind,
    Dispatcher,
    LocalWire,
    Offload,
    OptimizerStep,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.precision import recipe
from escala.model.problem import Problem
from escala.model.workload import Batching, Method, OptimizerKind, Workload

TRAINED: Final = (Method.PRETRAIN, Method.FULL)
ADAPTED: Final = (Method.LORA, Method.QLORA)
MIXED: Final = (Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16)
ANY: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One plan to be written; `digest` names the plan file, `model` and `data` are what the target loads.

    `learning_rate` and `steps` are no part of a plan; the header says so.
    The plan itself is written beside all files as `plan.json`. `launch` is for files of a scheduler: the line
    of another target that it has to run on every node, beside that target's files; empty for a line of its
    own. The line reads MASTER_ADDR, MASTER_PORT and NODE_RANK (from 0), which the scheduler's file sets.
    """

    problem: Problem
    plan: Plan
    digest: str
    model: str
    data: str
    learning_rate: float
    steps: int
    launch: str = ""

    @property
    def nodes(self) -> int:
        """Nodes that the plan needs."""
        return self.problem.cluster.nodes

    @property
    def devices_per_node(self) -> int:
        """Ranks on each node."""
        return min(self.plan.devices, self.problem.cluster.devices_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutFile:
    """One file to be written, whole."""

    name: str
    text: str
    is_executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What files of a target can express; the defaults are a target that knows data parallelism alone.

    Degrees are the largest ones, `ANY` for no limit. `zero` are stages, `hybrid` groups smaller than all
    replicas. Names in the other fields are those of Plan and Workload.
    """

    zero: tuple[int, ...] = (0,)
    no_reshard: bool = False
    hybrid: bool = False
    tp: int = 1
    sp: tuple[bool, ...] = (False,)
    pp: int = 1
    schedules: tuple[Schedule, ...] = ()
    splits: tuple[Split, ...] = (Split.EVEN,)
    cp: int = 1
    cp_kinds: tuple[ContextKind, ...] = ()
    ep: int = 1
    etp: int = 1
    dispatchers: tuple[Dispatcher, ...] = (Dispatcher.ALL_TO_ALL,)
    recompute: tuple[Recompute, ...] = (Recompute.NONE,)
    offload_optimizer: tuple[Offload, ...] = (Offload.NONE,)
    offload_params: tuple[Offload, ...] = (Offload.NONE,)
    offload_activations: tuple[Offload, ...] = (Offload.NONE,)
    precisions: tuple[Precision, ...] = MIXED
    compiles: tuple[Compile, ...] = (Compile.OFF,)
    fused_loss: bool = False
    local_steps: int = 1
    placements: bool = False
    methods: tuple[Method, ...] = TRAINED
    freezes: tuple[str, ...] = ()
    optimizers: tuple[OptimizerKind, ...] = (OptimizerKind.ADAMW, OptimizerKind.SGD)
    images: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A tool for which plans are written: its name, its version, what it can express, how one launches it.

    `launch` is the command line for each node, with {devices}, {nodes} and {devices_per_node}; `launch_nodes`
    the one for several nodes, if it differs: that one may read $MASTER_ADDR, $MASTER_PORT and $NODE_RANK.
    `wraps` is said of schedulers, whose files can run the `launch` of an order in place of their own line.
    """

    name: str
    title: str
    version: str
    abilities: Abilities
    launch: str
    page: str
    engine: str = "pytorch"
    launch_nodes: str = ""
    wraps: bool = False
    also: Callable[[Order], list[str]] = field(default=lambda order: [])
    """Reasons beyond the abilities why an order cannot be written."""


class Writer(Protocol):
    """A module `writing` of a tool."""

    TARGET: Target

    def write(self, order: Order) -> list[OutFile]:
        """The files of an order that nothing is lacking for."""


def lacking(target: Target, order: Order) -> list[str]:
    """What the target cannot express of an order, each with what it can; empty where it can express all."""
    return [*_lacking(target.abilities, order), *target.also(order)]


def _lacking(able: Abilities, order: Order) -> Iterator[str]:
    plan = order.plan
    yield from _work_lacks(able, order.problem.workload)
    yield from _sharding_lacks(able, plan)
    yield from _degrees_lack(able, plan)
    yield from _savings_lack(able, plan)
    if plan.precision not in able.precisions:
        names = _listed(recipe(each).name for each in able.precisions)
        yield f"{recipe(plan.precision).name}: it has {names}"
    if plan.wide_layers:
        yield "layers that stay in 16 bit"
    if plan.placement != Plan().placement and not able.placements:
        yield f"the order {plan.placement} of ranks: it has {Plan().placement} only"
    yield from _meetings_lack(able, plan)


def _work_lacks(able: Abilities, workload: Workload) -> Iterator[str]:
    """What it trains: network, method, frozen parts, optimizer, lengths."""
    if workload.network.is_image and not able.images:
        yield "networks for images"
    if workload.network.is_traced:
        yield "a module of your own: run it by escala train plan.json --module, or by escala.prepare"
    if workload.method not in able.methods:
        yield f"{workload.method}: it trains {_listed(able.methods)}"
    for part in filter(None, frozen_words(workload.network).split(",")):
        if part not in able.freezes:
            yield f"frozen {part}: it freezes {_listed(able.freezes) or 'nothing'}"
    if workload.optimizer.kind not in able.optimizers:
        yield f"the optimizer {workload.optimizer.kind}: it has {_listed(able.optimizers)}"
    if workload.lengths.batching not in (Batching.FULL, Batching.PACKED):
        yield f"batches of unequal samples ({workload.lengths.batching}): its files say full sequences"


def _sharding_lacks(able: Abilities, plan: Plan) -> Iterator[str]:
    """How replicas hold their states."""
    if plan.zero not in able.zero:
        yield f"ZeRO stage {plan.zero}: it has {_listed(able.zero)}"
    elif plan.zero == 3 and not plan.reshard and not able.no_reshard:
        yield "sharded weights that stay gathered from forward to backward"
    if 1 < plan.shard < plan.dp * plan.cp and plan.zero in able.zero and not able.hybrid:
        yield f"shards over {plan.shard} of {plan.dp * plan.cp} replicas (HSDP)"


def _degrees_lack(able: Abilities, plan: Plan) -> Iterator[str]:
    """Degrees of parallelism, and the kinds of those above 1."""
    for axis, most in (("tp", able.tp), ("pp", able.pp), ("cp", able.cp), ("ep", able.ep), ("etp", able.etp)):
        if getattr(plan, axis) > most:
            yield f"{axis} {getattr(plan, axis)}: " + ("it has none" if most == 1 else f"at most {most}")
    if plan.tp > 1 and able.tp > 1 and plan.sp not in able.sp:
        yield f"tensor parallelism {'with' if plan.sp else 'without'} sequence parallelism"
    if plan.pp > 1 and able.pp > 1:
        yield from _one_of("schedule", plan.schedule, able.schedules)
        yield from _one_of("split of stages", plan.split, able.splits)
    if plan.cp > 1 and able.cp > 1:
        yield from _one_of("context parallelism", plan.cp_kind, able.cp_kinds)
    if plan.ep > 1 and able.ep > 1:
        yield from _one_of("dispatcher", plan.dispatcher, able.dispatchers)
    if plan.dynamic_cp and plan.cp > 1:
        yield "dynamic context parallelism"


def _savings_lack(able: Abilities, plan: Plan) -> Iterator[str]:
    """What saves memory or launches: recompute, offload, the step, the compiler, the loss."""
    yield from _one_of("recompute", plan.recompute, able.recompute)
    yield from _one_of("offload of the optimizer", plan.offload_optimizer, able.offload_optimizer)
    yield from _one_of("offload of weights", plan.offload_params, able.offload_params)
    yield from _one_of("offload of activations", plan.offload_activations, able.offload_activations)
    if plan.optimizer_step is not OptimizerStep.WHOLE:
        yield f"an optimizer step {_named(plan.optimizer_step)}"
    yield from _one_of("torch.compile", plan.compile, able.compiles)
    if plan.fused_loss and not able.fused_loss:
        yield "a fused loss"


def _meetings_lack(able: Abilities, plan: Plan) -> Iterator[str]:
    """Local steps and how replicas meet."""
    is_plain = plan.local_wire is LocalWire.FP32 and plan.local_fragments == 1
    if plan.local_steps > able.local_steps or (plan.local_steps > 1 and not is_plain):
        yield "replicas that train alone between meetings (local steps)"
    if plan.local_overlap_steps:
        yield "meetings that travel while replicas train on (overlapped local steps)"


def _one_of(what: str, given: object, able: tuple[object, ...]) -> Iterator[str]:
    if given not in able:
        yield f"{what} {_named(given)}: it has {_listed(_named(each) for each in able) or 'none'}"


def _named(given: object) -> str:
    name = str(getattr(given, "name", given)).lower().replace("_", "-")
    return "1f1b" if given is Schedule.ONE_F_ONE_B else name


def _listed(several: object) -> str:
    return ", ".join(str(each) for each in several)  # type: ignore[attr-defined]  # any iterable


def launch_line(target: Target, order: Order) -> str:
    """The command line that starts an order on each of its nodes."""
    line = target.launch_nodes if target.launch_nodes and order.nodes > 1 else target.launch
    return line.format(devices=order.plan.devices, nodes=order.nodes, devices_per_node=order.devices_per_node)


def header(target: Target, order: Order, mark: str = "#") -> str:
    """The first lines of every file: which plan, for which version, how to launch, what no plan knows."""
    lines = (
        f"{target.title} {target.version}, written by escala from plan {order.digest}",
        f"launch: {launch_line(target, order)}",
        f"no part of the plan: learning rate {order.learning_rate:g}, {order.steps} steps, data {order.data}",
    )
    return "".join(f"{mark} {line}\n" for line in lines)
