"""Keeps the ranks of one machine alive: torchelastic's agent, which also says why it starts them again.

Needs torch. What cannot be helped by another start ends the run: wrong input and an interrupt at once, an
error when it comes again at the same place.
"""

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from torch.distributed.elastic.agent.server.api import WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from escala.training.launch.blame import Fault, first_fault

FINAL: Final = (2, 3, 130)
"""Exit codes of wrong input, of a missing part and of an interrupt: the next start would end the same way."""
SAVING_S: Final = 600
"""How long ranks that were asked to stop may take to save, before they are killed."""
HERE: Final = "localhost"


class Agent(LocalElasticAgent):
    """Starts all ranks again after a fault that may be passing, and tells it in one line."""

    def __init__(self, spec: WorkerSpec, logs: DefaultLogsSpecs, tell: Callable[[str], None]) -> None:
        super().__init__(spec, logs, start_method="spawn", shutdown_timeout=SAVING_S)
        self._tell = tell
        self._before: Fault | None = None
        self.is_repeated = False

    def _monitor_workers(self, worker_group: Any) -> Any:
        result = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED:
            fault = first_fault(result.failures)
            self.is_repeated = fault.repeats(self._before)
            self._before = fault
            if fault.code in FINAL or self.is_repeated:
                self._remaining_restarts = 0
            elif self._remaining_restarts > 0:
                count = worker_group.spec.max_restarts
                self._tell(f"{fault}; start {count - self._remaining_restarts + 2} of {count + 1}")
        return result


def agent_of(
    ranks: int, command: Sequence[str], *, restarts: int, logs: Path, tell: Callable[[str], None]
) -> Agent:
    """An agent for so many ranks on this machine, which meet on a port that is free."""
    meeting = RendezvousParameters(
        backend="c10d",
        endpoint=f"{HERE}:0",
        run_id=f"run-{uuid.uuid4().hex[:8]}",
        min_nodes=1,
        max_nodes=1,
        local_addr=HERE,
    )
    spec = WorkerSpec(
        role="rank",
        local_world_size=ranks,
        entrypoint=command[0],
        args=tuple(command[1:]),
        rdzv_handler=get_rendezvous_handler(meeting),
        max_restarts=restarts,
        monitor_interval=0.1,
        local_addr=HERE,
    )
    # rank 0 keeps the terminal, for a view that is drawn there
    files = dict.fromkeys(range(ranks), Std.ALL) | {0: Std.NONE}
    return Agent(spec, DefaultLogsSpecs(log_dir=str(logs), redirects=files), tell)
