"""A thread that takes samples at even times until it is told to end. Writes no file, keeps nothing."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Thread
from types import TracebackType

from escala.measurement.sampling.gpus import find_gpus
from escala.measurement.sampling.machine import Container, Machine
from escala.measurement.sampling.packages import Packages
from escala.measurement.sampling.place import node, rank
from escala.measurement.sampling.sample import SAMPLE_SCHEMA, Sample, utc
from escala.measurement.sampling.tree import Tree


class Sampler:
    """Samples of a process, its descendants and their node; `take` gets each one, in the sampler's thread.

    Used with `with`: one sample at the beginning, one every `every_s` seconds, one at the end. A moment that
    is missed (the machine sleeps, another thread keeps the interpreter) is not made up for; `interval_s` of
    the next sample is longer. `gaps` says what cannot be sampled here and why, `cpu_s` what sampling cost.
    """

    def __init__(self, pid: int, every_s: float, take: Callable[[Sample], None]) -> None:
        self._take, self._every_s = take, every_s
        self._node, self._rank = node(), rank()
        self._tree, self._machine = Tree(pid), Machine()
        self._container, self._packages = Container(), Packages()
        self._gpus, no_gpu = find_gpus()
        self.gaps = tuple(gap for gap in (no_gpu, self._packages.gap) if gap)
        self.cpu_s = 0.0
        self._first_s: float | None = None
        self._elapsed_s = 0.0
        self._end = Event()
        self._thread = Thread(target=self._run, name="escala sampler", daemon=True)

    def __enter__(self) -> "Sampler":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the last sample and end."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._end.wait(max(0.0, due_s - time.monotonic())):
            self._once()
            due_s = max(due_s + self._every_s, time.monotonic())
        self._once()

    def _once(self) -> None:
        began_s, now_s = time.thread_time(), time.monotonic()
        self._first_s = now_s if self._first_s is None else self._first_s
        before_s, self._elapsed_s = self._elapsed_s, now_s - self._first_s
        self._take(self._sample(self._elapsed_s - before_s))
        self.cpu_s += time.thread_time() - began_s

    def _sample(self, interval_s: float) -> Sample:
        machine = self._machine.use(interval_s)
        return Sample(
            schema=SAMPLE_SCHEMA,
            time=utc(datetime.now(UTC)),
            node=self._node,
            rank=self._rank,
            elapsed_s=self._elapsed_s,
            interval_s=interval_s,
            command=self._tree.use(interval_s),
            machine=machine,
            interfaces=self._machine.interfaces(),
            container=self._container.use(machine.memory_bytes),
            gpus=() if self._gpus is None else self._gpus.use(),
            packages=self._packages.use(),
        )
