"""Does calibrating on one half of a source improve the other half? Two tables for docs/data; takes minutes.

left-out-numbers.csv: all free numbers, estimated without any row of the source, as if a user came with runs
that nobody had seen. halves.csv: its configurations split in two by a hash of their names; each half in turn
plays the user's own runs, and the other is predicted before and after. The sources were chosen before any
result: software of five kinds, from 15 to 145 rows.
"""

import csv
import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from escala.calibration import Reading, read, read_rows
from escala.calibration.free import Free, free_parameters
from escala.calibration.leftout import residuals
from escala.calibration.own import OwnRun, OwnSample, fit_own
from escala.calibration.own_list import OwnFree, own_numbers
from escala.calibration.posterior import most_probable
from escala.calibration.sample import Sample, moved, predicted, slopes
from escala.calibration.widths import widened
from escala.model.columns import F64
from escala.model.interval import combined_ratio, published_ratios
from escala.model.own import OwnSpread
from escala.wholefile import write_whole

SOURCES = (
    "MosaicML llm-foundry training benchmarks",
    "NVIDIA Megatron-Bridge",
    "BigScience BLOOM-176B prequel (Jean Zay A100)",
    "Qwen README fine-tuning profile",
    "torchtitan",
)
DATA = Path(__file__).resolve().parent.parent / "docs" / "data"
NUMBERS, HALVES = DATA / "left-out-numbers.csv", DATA / "halves.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One free number without the rows of a source: logarithm of the factor on the record, and its sd."""

    source: str
    number: str
    logarithm: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Mean size of the errors of the held half, one vote for each configuration.

    `before` no row of the source had been seen, `after` the other half was calibrated on, `in_fit` is the
    error of the published fit, which has seen all of them. `inside_...` are shares of rows in the 80 %
    interval: of a new stack, and of that with the spread of the other half.
    """

    source: str
    own_runs: int
    held_runs: int
    held_configurations: int
    before: float
    after: float
    in_fit: float
    inside_before: float
    inside_after: float


def readings() -> Iterator[Reading]:
    """All rows that can be predicted."""
    return (each for each in map(read, read_rows().rows) if isinstance(each, Reading))


def left_out_numbers() -> Iterator[Number]:
    """Every free number without each of the sources, along the slopes of the published fit."""
    sample = Sample.of(list(readings()))
    free = tuple(f for f in free_parameters() if any(f.touches(problem) for problem in sample.problems))
    values, prior_sd = np.log([f.present for f in free]), np.array([f.sd for f in free])
    base = predicted(sample, free, values)
    slope = slopes(sample, free, values, base, _show)
    for source in SOURCES:
        others = sample.groups != source
        assert not others.all(), source
        left = most_probable(base - sample.log_published, slope, values, prior_sd, sample.weights, others)
        for each, value, sd in zip(free, left.values, left.sd, strict=True):
            yield Number(source=source, number=each.name, logarithm=float(value), sd=float(sd))


def _show(share: float) -> None:
    print(f"slopes: {share:4.0%}", end="\r", file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unseen:
    """A source, and all free numbers without its rows: logarithms of the factors, and their sd."""

    source: str
    free: tuple[Free, ...]
    values: F64
    sd: F64

    @classmethod
    def of(cls, source: str, numbers: Sequence[Number]) -> "Unseen":
        """The numbers of a file in the order of the list."""
        known = {each.number: each for each in numbers}
        free = tuple(f for f in free_parameters() if f.name in known)
        return cls(
            source=source,
            free=free,
            values=np.array([known[f.name].logarithm for f in free]),
            sd=np.array([known[f.name].sd for f in free]),
        )

    def run(self, reading: Reading) -> OwnRun:
        """A row as an own run, predicted with numbers that no row of its source had a part in."""
        assert reading.step_s is not None
        return OwnRun(
            name=reading.configuration,
            problem=moved(reading.problem, self.free, self.values),
            plan=reading.plan,
            seconds=reading.step_s,
        )

    def prior(self, given: OwnFree, sample: OwnSample) -> OwnFree:
        """The number with the standard deviation that the other sources leave."""
        mine = next(problem for problem in sample.problems if given.touches(problem))
        kind = (given.number.of, given.number.field)
        pairs = zip(self.free, self.sd, strict=True)
        sds = [sd for each, sd in pairs if (each.of, each.field) == kind and each.touches(mine)]
        return replace(given, sd=float(np.hypot.reduce(sds))) if sds else given


def halves(unseen: Unseen) -> list[Half]:
    """Calibrated on either half, scored on the other."""
    sample = Sample.of([each for each in readings() if each.group == unseen.source])
    parts = [[r for r in sample.readings if is_first(r.configuration) == first] for first in (True, False)]
    return [half(unseen, own, held) for own, held in (parts, parts[::-1])]


def half(unseen: Unseen, own: Sequence[Reading], held: Sequence[Reading]) -> Half:
    """One half calibrated on, the other scored."""
    sample, other = (OwnSample.of([unseen.run(each) for each in rows]) for rows in (own, held))
    free = [unseen.prior(each, sample) for each in own_numbers(sample.problems)]
    found = fit_own(sample, free, lambda label, share: None)
    values = np.zeros(len(free)), found.solved.posterior.values
    both = [predicted(other, free, each) - other.log_published for each in values]
    names = [each.configuration for each in held]
    seen = np.array([residuals()[each.row.id].inside for each in held])
    before, after, in_fit = (mean_error(each, names) for each in (*both, seen))
    return Half(
        source=unseen.source,
        own_runs=len(own),
        held_runs=len(held),
        held_configurations=len(set(names)),
        before=before,
        after=after,
        in_fit=in_fit,
        inside_before=inside(both[0], held, ()),
        inside_after=inside(both[1], held, found.spreads),
    )


def inside(errors: F64, rows: Sequence[Reading], spreads: Sequence[OwnSpread]) -> float:
    """Share of rows in the interval of a new stack, as far as spreads say nothing else of its regime."""
    is_held = [
        abs(error) <= math.log(ratio_of(row, spreads)) for error, row in zip(errors, rows, strict=True)
    ]
    return round(float(np.mean(is_held)), 4)


def ratio_of(row: Reading, spreads: Sequence[OwnSpread]) -> float:
    """The factor of the interval of a row: that of a new stack, beside its own spread if there is one."""
    new = replace(row.problem, engine=replace(row.problem.engine, is_calibrated=False))
    published = float(published_ratios(new)[row.regime])
    stack = (row.problem.engine.name, row.problem.accelerator.name, row.regime.name.lower())
    own = next((e for e in spreads if (e.engine, e.accelerator, e.regime) == stack), None)
    ratio = published if own is None else combined_ratio(published, own.configurations, own.error)
    return widened(ratio, row.imputed)


def is_first(name: str) -> bool:
    """Which half a configuration falls into: a coin that its name tosses."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def mean_error(errors: F64, names: Sequence[str]) -> float:
    """Mean size of the errors, one vote for each configuration."""
    sizes, every = np.abs(np.expm1(errors)), np.array(names)
    return round(float(np.mean([sizes[every == name].mean() for name in sorted(set(names))])), 4)


def read_unseen() -> Iterator[Unseen]:
    """The sources of the file, with the numbers that the others leave."""
    rows = list(csv.DictReader(NUMBERS.read_text().splitlines()))
    for source in SOURCES:
        yield Unseen.of(source, [_number(row) for row in rows if row["source"] == source])


def _number(row: Mapping[str, str]) -> Number:
    return Number(
        source=row["source"],
        number=row["number"],
        logarithm=float(row["logarithm"]),
        sd=float(row["sd"]),
    )


def text_of(records: Iterable[Number | Half]) -> str:
    """Records as CSV."""
    rows = [{name: getattr(each, name) for name in each.__slots__} for each in records]
    lines = [",".join(rows[0])]
    for row in rows:
        lines.append(",".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.values()))
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes both tables; with --again the second alone."""
    if "--again" not in sys.argv:
        write_whole(NUMBERS, text_of(left_out_numbers()).encode())
    found = [each for unseen in read_unseen() for each in halves(unseen)]
    write_whole(HALVES, text_of(found).encode())
    print(f"{NUMBERS}\n{HALVES}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
