"""Lines with a time of UTC before them, as `escala watch` and containers write them. Knows no tool.

A tool's own clock stays the clock of its steps; the time before the line says when, in UTC.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Final

from escala.measurement.logs.samples import Samples
from escala.measurement.logs.source import Source, stamp_s

STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9})Z ")


@dataclass(frozen=True, slots=True)
class Stamped(Source):
    """A source whose lines begin with a time; `now_s` is that of the line that was read last."""

    last: list[str] = field(default_factory=lambda: [""])

    @property
    def now_s(self) -> float:
        """The time of the last line that has one; NaN before it."""
        at_s = stamp_s(self.last[0])
        return nan if at_s is None else at_s

    def lines(self) -> Iterator[str]:
        """Lines without their time; a line without one is as old as the one before."""
        for line in Source.lines(self):
            found = STAMP.match(line)
            if found is not None:
                self.last[0] = found[1]
            yield line if found is None else line[found.end() :]


def stamped(read: Callable[[Source], Samples]) -> Callable[[Source], Samples]:
    """A reader of lines that takes the time before each line as the clock."""

    def reader(source: Source) -> Samples:
        marked = Stamped(source.path, source.left_out)
        for sample in read(marked):
            now_s = marked.now_s
            yield sample if isnan(now_s) else sample._replace(at_s=now_s)

    return reader
