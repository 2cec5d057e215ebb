"""The question as data: workload and cluster with totals, and the interval of a time. Judges no plan."""

from dataclasses import fields
from typing import Any

from escala.errors import InvalidInput
from escala.model.estimate import Estimate
from escala.model.flops import reference_peak_flop_per_s
from escala.model.freezing import frozen_words
from escala.model.images import image_tokens
from escala.model.interval import WORDS, Regime, own_spread
from escala.model.network import Network
from escala.model.own_numbers import own_words
from escala.model.parameters import active_parameters, network_parameters
from escala.model.plan import Precision
from escala.model.precision import recipe
from escala.model.problem import Problem
from escala.planning.defaults import OPTIMIZERS
from escala.report.answer import CalibrationView, ClusterView, LinkView, WorkloadView
from escala.report.shared import calibration_notes, tokens_per_step
from escala.units import percent


def workload_view(problem: Problem, precision: Precision) -> WorkloadView:
    """The workload in words and totals."""
    work = problem.workload
    network = work.network
    return WorkloadView(
        network=network.name,
        network_source=network.source,
        parameters=network_parameters(network).total,
        active_parameters=active_parameters(network),
        layers=network.layers,
        method=str(work.method),
        lora_rank=None if work.lora is None else work.lora.rank,
        frozen=frozen_words(network),
        image_tokens=image_tokens(network),
        precision=recipe(precision).name,
        optimizer=next((name for name, each in OPTIMIZERS.items() if each == work.optimizer), "custom"),
        sample=sample_of(network),
        sequence_tokens=work.sequence_tokens,
        global_batch=work.global_batch,
        tokens_per_step=tokens_per_step(problem),
        total_tokens=work.total_tokens,
    )


def sample_of(network: Network) -> str:
    """What the global batch counts: sequences, images, or samples of a traced module."""
    if not network.is_image:
        return "sequences"
    return "samples" if network.is_traced else "images"


def refuse_less_than_a_step(problem: Problem) -> None:
    """Refuse a run that is over before its first step is."""
    total, step = problem.workload.total_tokens, tokens_per_step(problem)
    if total is not None and total < step:
        network = problem.workload.network
        what = sample_of(network) if network.is_image else "tokens"
        raise InvalidInput(
            f"--tokens {total:,.0f} is less than one step of {step:,} {what}; "
            f"give at least {step:,}, or a smaller --global-batch"
        )


def cluster_view(problem: Problem) -> ClusterView:
    """The cluster with its links and its site."""
    cluster, chip = problem.cluster, problem.accelerator
    site = cluster.site
    return ClusterView(
        name=cluster.name,
        source=cluster.source,
        accelerator=chip.name,
        devices=cluster.devices,
        devices_per_node=cluster.devices_per_node,
        nodes=cluster.nodes,
        memory_bytes=chip.memory_bytes,
        peak_flop_per_s=reference_peak_flop_per_s(problem),
        links=tuple(_pick(LinkView, link) for link in cluster.crossed_links),
        host_memory_bytes=cluster.host.memory_bytes,
        country=site.country,
        pue=site.pue,
        node_power_ratio=site.node_power_ratio,
        carbon_kg_per_j=site.carbon_kg_per_j,
        price_usd_per_device_hour=site.price_usd_per_device_hour,
        price_date=site.price_date,
        price_source=site.price_source,
        measured=cluster.measured,
        unmeasured=cluster.unmeasured,
    )


def energy_unknown(problem: Problem) -> str | None:
    """Why no energy can be said; None where it can."""
    chip = problem.accelerator
    return None if chip.power_w is not None else f"the power of {chip.name} is not published"


def _pick(view: Any, source: object) -> Any:
    return view(**{field.name: getattr(source, field.name) for field in fields(view)})


def doubt(problem: Problem, result: Estimate | None, row: int | None) -> str:
    """How wide the intervals of one plan are and why, in words."""
    if result is None or row is None:
        return "no plan, no interval"
    known, ratio = problem.assumptions, float(result.interval_ratio[row])
    step, regime = _spread(1.0 / ratio, ratio), regime_words(result, row)
    memory = _spread(known.memory_interval_low, known.memory_interval_high)
    spread = own_spread(problem, Regime(int(result.regime[row])))
    own = "" if spread is None else f" and {spread.configurations} own"
    return f"step time {step} ({regime}), memory {memory}: 80 % intervals from published runs{own}"


def _spread(low: float, high: float) -> str:
    return f"−{percent(1.0 - low)} to +{percent(high - 1.0)}"


def regime_words(result: Estimate, row: int) -> str:
    """The kind of run that the interval of a plan was found on."""
    return WORDS[Regime(int(result.regime[row]))]


def calibration_view(problem: Problem) -> CalibrationView:
    """What published runs did not calibrate, and what stands in its place."""
    return CalibrationView(
        engine_is_calibrated=problem.engine.is_calibrated,
        accelerator_is_calibrated=problem.accelerator.is_calibrated,
        notes=calibration_notes(problem),
        own=own_words(problem),
    )
