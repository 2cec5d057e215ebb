"""Joules, money and carbon of one step from its seconds. Knows three power states, no meter.

A device that computes, waits for the network or waits for others draws different power: a busy GPU draws
nine tenths of its limit at a third of its peak FLOP/s, so power is not proportional to utilisation.
"""

from dataclasses import dataclass

import numpy as np

from escala.model.assumptions import Assumptions
from escala.model.columns import F64
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.steptime import StepTime
from escala.units import HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """Energy, money and carbon of one step; NaN-free: None when a price, power or grid is unknown."""

    energy_j: F64 | None
    cost_usd: F64 | None
    carbon_kg: F64 | None
    power_w: F64 | None


def communication_s(time: StepTime) -> F64:
    """Seconds of a step that wait for the network: all exposed communication."""
    return (
        time.tensor_parallel_s
        + time.context_parallel_s
        + time.expert_parallel_s
        + time.transfer_s
        + time.sharding_s
        + time.gradient_sync_s
        + time.offload_s
    )


def idle_s(time: StepTime) -> F64:
    """Seconds of a step in which a device waits for other devices or for the host."""
    return time.bubble_s + time.straggler_s + time.overhead_s + time.dispatch_s


def compute_s(time: StepTime) -> F64:
    """Seconds of a step in which a device computes or moves its own memory: what is left."""
    return time.step_s - communication_s(time) - idle_s(time)


def device_energy_j(problem: Problem, plans: Plans, time: StepTime) -> F64 | None:
    """Devices * power limit * (compute share * compute + communication share * waiting + idle share * idle).

    Source: shares anchored on measured LLM pretraining (0.89-0.93 of the limit), see assumptions.
    """
    limit_w = problem.accelerator.power_w
    if limit_w is None:
        return None
    return limit_w * full_power_s(problem.assumptions, time) * plans.devices


def full_power_s(known: Assumptions, time: StepTime) -> F64:
    """Seconds at the power limit that draw the energy of a step: share * seconds, over the three states."""
    return (
        known.power_compute_share * compute_s(time)
        + known.power_communication_share * communication_s(time)
        + known.power_idle_share * idle_s(time)
    )


def energy_factors(
    problem: Problem, time: StepTime, ratio: F64, ends: tuple[Assumptions, Assumptions]
) -> tuple[F64, F64]:
    """Ends of the 80 % interval of energy over its value: exp(-+ sqrt(ln(f)^2 + ln(g)^2)). Shapes (n,).

    f is the factor of step time, g that of the power shares: seconds at full power with all three shares at
    one end of their ranges over those at their values. Errors of time and of power are taken as independent;
    node ratio, PUE and grid as exact. Source: ranges of the shares, see assumptions.
    """
    value, least, most = (full_power_s(known, time) for known in (problem.assumptions, *ends))
    low = np.exp(-np.hypot(np.log(ratio), np.log(value / least)))
    high = np.exp(np.hypot(np.log(ratio), np.log(most / value)))
    return np.asarray(low, np.float64), np.asarray(high, np.float64)


def footprint(problem: Problem, plans: Plans, time: StepTime) -> Footprint:
    """Site energy = device energy * node ratio * PUE; carbon = energy * grid; money = hours * price.

    Source: Green Algorithms (Lannelongue 2021) for the product; site values from the catalog.
    """
    site = problem.cluster.site
    device_j = device_energy_j(problem, plans, time)
    energy_j = None if device_j is None else device_j * site.node_power_ratio * site.pue
    price = site.price_usd_per_device_hour
    carbon = site.carbon_kg_per_j
    return Footprint(
        energy_j=energy_j,
        cost_usd=None if price is None else time.step_s * plans.devices / HOUR_S * price,
        carbon_kg=None if energy_j is None or carbon is None else energy_j * carbon,
        power_w=None if energy_j is None else np.asarray(energy_j / time.step_s, np.float64),
    )
