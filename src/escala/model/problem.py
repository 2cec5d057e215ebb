"""What every formula is asked about: a workload on a cluster under an engine, with the shared assumptions."""

from dataclasses import dataclass

from escala.model.assumptions import Assumptions
from escala.model.cluster import Accelerator, Cluster
from escala.model.engine import Engine, EngineMessages
from escala.model.own import Own
from escala.model.traced import NOT_TRACED
from escala.model.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question: the workload, the cluster, the engine that runs it and the shared assumptions.

    `own` says which numbers of engine and cluster were moved by a user's own runs, and by which.
    """

    workload: Workload
    cluster: Cluster
    engine: Engine
    assumptions: Assumptions
    own: Own | None = None

    @property
    def accelerator(self) -> Accelerator:
        """The device type of the cluster."""
        return self.cluster.accelerator

    @property
    def lacks(self) -> tuple[str, ...]:
        """Abilities that plans cannot use: those that the engine lacks, and of a traced module some more."""
        own = NOT_TRACED if self.workload.network.is_traced else ()
        return (*self.engine.lacks, *(each for each in own if each not in self.engine.lacks))

    @property
    def messages(self) -> EngineMessages:
        """When the engine sends, on the backend that was measured; else as on any."""
        own = dict(self.engine.messages)
        return own.get(self.cluster.backend, own.get("any", EngineMessages()))
