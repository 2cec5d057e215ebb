"""Lines with a time of UTC before them, as `escala watch` and containers write them. Knows no tool.

A tool's own clock stays the clock of its steps; the time before the line says when, in UTC.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import nan
from typing import Final

from escala.measurement.logs.samples import Samples
from escala.measurement.logs.source import Source, stamp_s

STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9})Z ")


@dataclass(frozen=True, slots=True)
class Stamped(Source):
    """A source whose lines begin with a time; `now_s` is that of the line that was read last."""

    times_s: list[float] = field(default_factory=lambda: [nan])

    @property
    def now_s(self) -> float:
        """The time of the last line."""
        return self.times_s[-1]

    def lines(self) -> Iterator[str]:
        """Lines without their time; a line without one is as old as the one before."""
        for line in Source.lines(self):
            found = STAMP.match(line)
            if found is not None:
                self.times_s[-1] = stamp_s(found[1]) or nan
            yield line if found is None else line[found.end() :]


def stamped(read: Callable[[Source], Samples]) -> Callable[[Source], Samples]:
    """A reader of lines that takes the time before each line as the clock."""

    def reader(source: Source) -> Samples:
        marked = Stamped(source.path, source.left_out)
        for sample in read(marked):
            yield sample if marked.now_s != marked.now_s else sample._replace(at_s=marked.now_s)

    return reader
