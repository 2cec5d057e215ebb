"""Progress bars of tqdm, as HF Trainer and Lightning draw them, and HF's last line. Reads stamped lines only.

Source: tqdm std.py (format_meter); transformers trainer_callback.py (ProgressCallback, PrinterCallback) and
trainer_utils.py (speed_metrics); Lightning callbacks/progress/tqdm_progress.py (Epoch N). Of several bars the
one that was drawn for the longest time has the steps: downloads and evaluations are shorter.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import Source
from escala.measurement.logs.stamped import Stamped

WIDEST: Final = 1000
"""Letters of a line in which a bar is looked for."""
NUMBER: Final = r"'?([-+.\de]+)'?"
BAR: Final = re.compile(r"^\s*([^|%]*?):? *\d{1,3}%\|[^|]*\| *(\d{1,15})/(\d{1,15}) \[\d")
NAMES: Final = re.compile(r"(?:epoch ?(\d+)(?:/\d+)?|train(?:ing)?|steps?|)", re.IGNORECASE)
END: Final = re.compile(
    rf"'train_runtime': {NUMBER}, 'train_samples_per_second': {NUMBER}, 'train_steps_per_second': {NUMBER}"
)


class Drawn(NamedTuple):
    """One state of a bar: its name without a number, the steps that are done and that it has in all."""

    name: str
    epoch: int
    done: int
    total: int


def progress(source: Source) -> Samples:
    """The clock at each step of the longest bar, and HF's samples a second of the whole run."""
    assert isinstance(source, Stamped)  # other lines have no time, so their bars say nothing
    chosen = _longest(Stamped(source.path))
    base = last = 0
    for line in source.lines():
        if (bar := drawn(line)) and (bar.name, bar.total) == chosen:
            base += bar.total * (bar.done < last) if not bar.name.startswith("epoch") else 0
            last = bar.done
            step = base + bar.epoch * bar.total + bar.done
            yield Sample(What.CLOCK_S, source.now_s, step)
        elif found := END.search(line):
            yield from _end(source, found)


def _end(source: Source, found: re.Match[str]) -> Samples:
    samples_per_s, steps_per_s = source.number(found[2]), source.number(found[3])
    if samples_per_s:
        yield Sample(What.SAMPLES_PER_S, samples_per_s)
    if steps_per_s:
        yield Sample(What.MEAN_STEP_S, 1 / steps_per_s)


def drawn(line: str) -> Drawn | None:
    """The state that a line draws, if it is a bar that may be that of the steps."""
    found = BAR.match(line[:WIDEST]) if "%|" in line else None
    named = NAMES.fullmatch(found[1].strip()) if found is not None else None
    if found is None or named is None or found[3] == "0":
        return None
    name = "epoch" if named[1] else named[0].lower()
    return Drawn(name, int(named[1] or 0), int(found[2]), int(found[3]))


def _longest(source: Stamped) -> tuple[str, int] | None:
    """Name and length of the bar that took most of the time, in all its rounds."""
    spent_s: dict[tuple[str, int], float] = {}
    before: tuple[tuple[str, int], float] | None = None
    for bar, now_s in _bars(source):
        key = (bar.name, bar.total)
        passed_s = now_s - before[1] if before is not None and before[0] == key else 0.0
        spent_s[key] = spent_s.get(key, 0.0) + passed_s
        before = (key, now_s)
    return max(spent_s, key=lambda key: spent_s[key], default=None)


def _bars(source: Stamped) -> Iterator[tuple[Drawn, float]]:
    for line in source.lines():
        if bar := drawn(line):
            yield bar, source.now_s
