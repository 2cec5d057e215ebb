"""A watch for people: how the command ended, its steps, what it used, what it seems to wait for."""

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.measurement.runrecord import RunRecord
from escala.measurement.watch.watched import Watched
from escala.report.layout import QUIET, STRONG, Chunk, flow, hanging, put, room
from escala.report.numbers import seconds
from escala.report.record_text import left_out, rate_parts, step_line
from escala.report.usage_text import usage_parts
from escala.units import percent

NOTHING: Final = "nothing that samples can show: no resource was full"


def print_watched(console: Console, given: Watched) -> None:
    """Everything that `escala watch` shows at its end."""
    put(console, _title(given))
    if given.run is not None:
        _run(console, given.run)
        _part(console, "Waits", [each.text for each in given.findings] or [NOTHING])
        _part(console, "Left", left_out(given.run.sources))
        _part(console, "Note", list(given.run.notes))
    _part(console, "Gap", list(given.gaps))
    _part(console, "Cost", [f"sampling took {percent(given.sampling_cpu_s / given.duration_s)} of one core"])
    names = sorted(path.name for path in Path(given.folder).iterdir())
    _part(console, "Files", [f"{one_line(given.folder)}: {', '.join(names)}"])


def _title(given: Watched) -> str:
    words = one_line(" ".join(given.command), 60)
    return f"{words}: ended with {given.exit_code} after {seconds(given.duration_s)}"


def _run(console: Console, given: RunRecord) -> None:
    put(console, Text(step_line(given.step), style=STRONG if given.step else QUIET))
    _part(console, "Rate", rate_parts(given))
    for usage in given.usage:
        for label, chunks in usage_parts(usage):
            _part(console, label, chunks)


def _part(console: Console, label: str, chunks: list[Chunk]) -> None:
    hanging(console, label, flow(chunks, room(console)))
