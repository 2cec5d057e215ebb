"""A run beside the plan that it followed: what verify compares and calibrate learns from. Data only."""

from dataclasses import dataclass

from escala.measurement.profile.record import Profile
from escala.measurement.runrecord import RunRecord
from escala.model.plan import Plan
from escala.model.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One run with the plan that it followed, and how people call the pair."""

    name: str
    run: RunRecord | Profile
    problem: Problem
    plan: Plan
