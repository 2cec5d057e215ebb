"""A thread on every rank that notices when a step takes far too long, and says which rank is missing.

Needs torch. The first rank whose step exceeds its limit raises an alarm in the store of the process group,
all ranks report what they are doing, whoever raised it judges. Every rank ends with that word, and the run
starts again.
"""

import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import torch.distributed as dist

from escala.training.launch.flight import report_of
from escala.training.launch.hang import Report, verdict
from escala.training.launch.words import leave_words

ALARM, ALARMS, WORD, TRAINING = "alarm", "alarms", "word", "training"
REMEMBERED: Final = 50
"""Steps whose median a step is compared with."""
FACTOR: Final = 10
"""A step that takes so many medians is no slow step."""
HUNG: Final = 1
"""Exit code after a hang; the launcher starts all ranks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds: the least limit of a step, that of other phases, between looks, for answers."""

    step_s: float = 60.0
    other_s: float = 600.0
    look_s: float = 2.0
    answer_s: float = 10.0


class Watchdog:
    """Watches the steps of this rank while the block lasts; `step` tells it that the next one begins.

    Its store is a connection of its own (`store_of(place, "hang")`), since it speaks while training waits.
    """

    def __init__(self, store: Any, folder: Path, limits: Limits | None = None) -> None:
        self._store, self._folder, self._limits = store, folder, limits or Limits()
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._step, self._phase, self._since_s, self._trained_s = 0, "starting", time.monotonic(), 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="escala-watchdog", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch, where there are other ranks to wait for."""
        if dist.get_world_size() > 1:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no more; an error is told with the step in which it happened."""
        if error is not None:
            error.add_note(f"step {self._step}")
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def step(self, step: int) -> None:
        """A step begins, and the one before it has ended."""
        now_s = time.monotonic()
        if self._phase == TRAINING:
            self._seconds.append(self._trained_s + now_s - self._since_s)
        self._step, self._phase, self._since_s, self._trained_s = step, TRAINING, now_s, 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Something else goes on, such as saving: it may take longer and is no part of the step."""
        before, now_s = self._phase, time.monotonic()
        if before == TRAINING:
            self._trained_s += now_s - self._since_s
        self._phase, self._since_s = name, now_s
        try:
            yield
        finally:
            self._phase, self._since_s = before, time.monotonic()

    def limit_s(self) -> float:
        """10 * the median step, at least a minute; the first steps compile, so they have longer."""
        if self._phase != TRAINING or len(self._seconds) < 3:
            return max(self._limits.other_s, self._limits.step_s)
        return max(self._limits.step_s, FACTOR * statistics.median(self._seconds))

    def _watch(self) -> None:
        try:
            while not self._end.wait(self._limits.look_s):
                self._look()
        except RuntimeError:  # the store is gone, and with it whoever could judge
            return

    def _look(self) -> None:
        if self._store.check([WORD]):
            self._die(self._store.get(WORD).decode())
        elif time.monotonic() - self._since_s > self.limit_s():
            self._store.set(ALARM, str(dist.get_rank()))
            self._judge()
        elif self._store.check([ALARM]):
            self._report()

    def _report(self) -> None:
        report = report_of(self._step, self._phase)
        self._store.set(_key(self._store.add(ALARMS, 0), report.rank), msgspec.json.encode(report))

    def _judge(self) -> None:
        """Hear all ranks, and end the run where one keeps the others waiting."""
        until_s, alarm = time.monotonic() + self._limits.answer_s, self._store.add(ALARMS, 0)
        ranks = dist.get_world_size()
        self._report()
        while time.monotonic() < until_s and not self._end.wait(self._limits.look_s / 2):
            self._report()
        keys = {rank: _key(alarm, rank) for rank in range(ranks)}
        heard = {rank: self._store.get(key) for rank, key in keys.items() if self._store.check([key])}
        reports = {rank: msgspec.json.decode(each, type=Report) for rank, each in heard.items()}
        word = verdict(reports, ranks)
        if word is None:
            self._store.delete_key(ALARM)
            self._store.add(ALARMS, 1)
            self._since_s = time.monotonic()
        elif not self._end.is_set():
            self._keep(reports)
            leave_words(word)
            self._store.set(WORD, word)
            time.sleep(2 * self._limits.look_s)  # until all have read it: then connections break
            self._die(word)

    def _keep(self, reports: dict[int, Report]) -> None:
        """All reports, for whoever looks into the run's folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        every = [reports[rank] for rank in sorted(reports)]
        (self._folder / "hang.json").write_bytes(msgspec.json.format(msgspec.json.encode(every)) + b"\n")

    def _die(self, word: str) -> None:
        leave_words(word)
        sys.stderr.write(f"{word}\n")
        sys.stderr.flush()
        os._exit(HUNG)  # the thread that trains hangs in a call that no exception ends


def _key(alarm: int, rank: int) -> str:
    """Where a rank reports, anew for every alarm."""
    return f"report/{alarm}/{rank}"
