"""How much of this node other processes than ours keep busy. Knows nothing of it where psutil is missing."""

import importlib.util
import time
from dataclasses import dataclass
from typing import Any, Final

LEAST_S: Final = 0.5
"""The system counts processor time in hundredths of a second; of less time too few have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWork:
    """Cores that processes of others kept busy on average, of so many of the node."""

    busy_cores: float
    cores: int

    @property
    def share(self) -> float:
        """Busy cores / cores."""
        return self.busy_cores / self.cores


class Others:
    """Counts from its making on what runs beside a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._began_s, self._machine, self._own = time.monotonic(), None, None
        if importlib.util.find_spec("psutil") is not None:
            self._machine, self._own = _sampled(pid)

    def work(self) -> OtherWork | None:
        """(Busy seconds of all cores - those of our processes) / seconds; None where nobody counted."""
        elapsed_s = time.monotonic() - self._began_s
        if self._machine is None or self._own is None or elapsed_s < LEAST_S:
            return None
        own_s, whole = self._own.use(elapsed_s).cpu_s, self._machine.use(elapsed_s)
        return OtherWork(busy_cores=max(whole.busy_s - own_s, 0.0) / elapsed_s, cores=whole.cores)


def _sampled(pid: int) -> tuple[Any, Any]:
    from escala.measurement.sampling.machine import Machine
    from escala.measurement.sampling.tree import Tree

    return Machine(), Tree(pid)
