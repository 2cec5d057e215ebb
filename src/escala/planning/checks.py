"""What the schemas can say and the planner cannot answer yet: refused with one clear line."""

from escala.errors import InvalidInput
from escala.model.network import Convolution
from escala.model.plan import Plan, Precision
from escala.model.precision import recipe
from escala.model.problem import Problem
from escala.model.rejects import DEALT, DYNAMIC_CP, REASONS, Reject, has_units, parts_of_network
from escala.model.workload import OptimizerKind, Phase, Workload


def refuse_unplanned(problem: Problem, precision: Precision) -> None:
    """Raise InvalidInput for a question whose answer would be a guess."""
    _refuse_workload(problem)
    _refuse_cluster(problem)
    refuse_scaled(problem, precision)
    chip = problem.accelerator
    if not has_units(chip, precision):
        able = [recipe(code).name for code in Precision if has_units(chip, code)]
        raise InvalidInput(f"{chip.name} has no unit for {recipe(precision).name}; choose {', '.join(able)}")


def refuse_scaled(problem: Problem, precision: Precision) -> None:
    """Raise for a scaled format, fp8 and below, where a module was traced without or the engine has none."""
    name = recipe(precision).name
    if not recipe(precision).is_scaled or "fp8" not in problem.lacks:
        return
    if problem.workload.network.is_traced:
        network = problem.workload.network.name
        raise InvalidInput(f"{network} is a traced module, which ran without {name}; give --precision bf16")
    engine = problem.engine.name
    raise InvalidInput(f"engine {engine} has no {name}; give --precision bf16, or another --engine")


def refuse_unable(problem: Problem, plain: Plan) -> None:
    """Raise InvalidInput for what all plans are asked to have and none can."""
    if plain.dynamic_cp and DYNAMIC_CP not in problem.engine.has:
        raise InvalidInput(
            f"engine {problem.engine.name} has no dynamic context parallelism; choose --engine megatron-core"
        )
    if plain.dynamic_cp and problem.workload.lengths.batching not in DEALT:
        raise InvalidInput(f"{REASONS[Reject.CONTEXT_DYNAMIC]}; give --batching masked")
    if plain.wide_layers and not recipe(plain.precision).is_scaled:
        name = recipe(plain.precision).name
        raise InvalidInput(f"wide_layers leaves layers of a scaled recipe in 16 bit; {name} is none")


def _refuse_workload(problem: Problem) -> None:
    workload = problem.workload
    refuse_no_matrices(workload)
    if workload.phase is not Phase.TRAIN:
        raise _not_yet(f"phase '{workload.phase}'", (Phase.TRAIN,))
    if not workload.lengths.is_packed:
        raise InvalidInput("samples of unequal length are not planned yet; pack them to the full sequence")
    if workload.global_batch < 1 or workload.sequence_tokens < 1:
        raise InvalidInput(
            f"global batch {workload.global_batch} and sequence {workload.sequence_tokens} must be 1 or more"
        )


def refuse_no_matrices(workload: Workload) -> None:
    """Raise for an optimizer that updates whole matrices where weights have none, or others are trained."""
    kind = workload.optimizer.kind
    if kind not in (OptimizerKind.MUON, OptimizerKind.ADAFACTOR):
        return
    if workload.network.is_traced:
        raise InvalidInput(f"{kind} is planned for known matrices, not for a traced module")
    if any(isinstance(part, Convolution) for part in parts_of_network(workload.network)):
        raise InvalidInput(f"{kind} is planned for matrices, and {workload.network.name} has convolutions")
    if workload.is_frozen and kind is OptimizerKind.MUON:
        raise InvalidInput("muon is planned for all weights, not for adapters; choose adamw")


def _refuse_cluster(problem: Problem) -> None:
    groups = problem.cluster.groups
    names = sorted({group.accelerator.name for group in groups})
    if len(names) > 1:
        raise InvalidInput(
            f"{problem.cluster.name} mixes {', '.join(names)}; mixed devices are not planned yet, "
            "describe and plan each type on its own"
        )
    if len({group.devices_per_node for group in groups}) > 1:
        raise InvalidInput(f"{problem.cluster.name} mixes nodes of different size; plan each on its own")
    _refuse_unknown_power(problem)


def _refuse_unknown_power(problem: Problem) -> None:
    """A limit that cannot be checked is no limit; it is not passed over."""
    site, chip = problem.cluster.site, problem.accelerator
    limited = site.power_limit_w is not None or site.rack_power_limit_w is not None
    if limited and chip.power_w is None:
        raise InvalidInput(f"the power of {chip.name} is not known; leave its limits out")
    if site.rack_power_limit_w is not None and site.devices_per_rack is None:
        raise InvalidInput(f"{problem.cluster.name} has a rack_power_limit; give devices_per_rack as well")


def _not_yet(what: str, allowed: tuple[str, ...]) -> InvalidInput:
    return InvalidInput(f"{what} is described but not planned yet; choose {', '.join(allowed)}")
