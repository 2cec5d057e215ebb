"""escala: measure, plan, run and verify the distributed training of AI models.

The names below are the public API; each is loaded when it is first used.

    problem, assumed = escala.answerable(
        escala.Question(
            network=escala.find_network("llama-3.1-8b"),
            cluster=escala.cluster_for("h100-sxm", 8),
            sequence_tokens=8192,
        )
    )
    found = escala.search(problem)
"""

from __future__ import annotations

# typing takes a hundredth of a second to load, in which Ctrl-C would print a traceback
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from escala.catalog import cluster, cluster_for, engine
    from escala.errors import EscalaError, InvalidInput, MissingExtra
    from escala.formats.cluster_toml import read_cluster
    from escala.formats.networks import find_network
    from escala.model.cluster import Cluster
    from escala.model.estimate import Estimate, estimate
    from escala.model.explain import explain
    from escala.model.network import Network
    from escala.model.plan import Plan, Plans
    from escala.model.problem import Problem
    from escala.model.workload import Workload
    from escala.planning.defaults import Question, answerable
    from escala.planning.scaling import curve
    from escala.planning.search import Found, search
    from escala.planning.sensitivity import sensitivity
    from escala.planning.space import SpaceLimits
    from escala.planning.timeline import timeline
    from escala.planning.why import families
    from escala.report.module_view import trace_module
    from escala.report.planfile import read_plan
    from escala.training.prepare import prepare

__version__ = "0.1.0"

_HOMES: Final = {
    "Cluster": "escala.model.cluster",
    "EscalaError": "escala.errors",
    "Estimate": "escala.model.estimate",
    "Found": "escala.planning.search",
    "InvalidInput": "escala.errors",
    "MissingExtra": "escala.errors",
    "Network": "escala.model.network",
    "Plan": "escala.model.plan",
    "Plans": "escala.model.plan",
    "Problem": "escala.model.problem",
    "Question": "escala.planning.defaults",
    "SpaceLimits": "escala.planning.space",
    "Workload": "escala.model.workload",
    "answerable": "escala.planning.defaults",
    "cluster": "escala.catalog",
    "cluster_for": "escala.catalog",
    "curve": "escala.planning.scaling",
    "engine": "escala.catalog",
    "estimate": "escala.model.estimate",
    "explain": "escala.model.explain",
    "families": "escala.planning.why",
    "find_network": "escala.formats.networks",
    "prepare": "escala.training.prepare",
    "read_cluster": "escala.formats.cluster_toml",
    "read_plan": "escala.report.planfile",
    "search": "escala.planning.search",
    "sensitivity": "escala.planning.sensitivity",
    "timeline": "escala.planning.timeline",
    "trace_module": "escala.report.module_view",
}

__all__ = [
    "Cluster",
    "EscalaError",
    "Estimate",
    "Found",
    "InvalidInput",
    "MissingExtra",
    "Network",
    "Plan",
    "Plans",
    "Problem",
    "Question",
    "SpaceLimits",
    "Workload",
    "answerable",
    "cluster",
    "cluster_for",
    "curve",
    "engine",
    "estimate",
    "explain",
    "families",
    "find_network",
    "prepare",
    "read_cluster",
    "read_plan",
    "search",
    "sensitivity",
    "timeline",
    "trace_module",
]


def __getattr__(name: str) -> Any:
    """The public name, loaded from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'escala' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Public names."""
    return [*__all__, "__version__"]
