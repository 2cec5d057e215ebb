"""Sections of docs/accuracy.md and of the README: how far predictions are off. Formats only.

All statistics come from escala.calibration; reasons of the worst rows stand in docs/data/worst-rows.toml.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from docs_fit import FIT_SECTIONS
from docs_rows import count, found, whole_percent
from docs_tables import GLUE, percent, share, table

from escala.calibration.gains import Gain, engine_gains, precision_gains
from escala.calibration.leftout import (
    Coverage,
    Pair,
    coverages,
    mean_coverage,
    pair,
    pairs_by,
    residuals,
    scored_rows,
    source_mean,
)
from escala.calibration.samples import Errors, Group, mape_together
from escala.calibration.scores import DIMENSIONS, Verdicts, worst_of
from escala.calibration.scoring import Prediction
from escala.calibration.subsets import SIZES, is_well_described, scale
from escala.calibration.sweeps import SweepScores
from escala.catalog.engines import assumptions
from escala.catalog.fitted import CALIBRATED_ROWS
from escala.model.interval import WORDS, Regime
from escala.report.calibration_plot import svg
from escala.report.validate_view import SHIPPED, row_view, validation_view

ROOT = Path(__file__).resolve().parents[1]
REASONS = ROOT / "docs" / "data" / "worst-rows.toml"
WORST = 20
UNEXAMINED = "not examined"


def by(name: str) -> tuple[Pair, ...]:
    """Rows by a dimension, in the fit and left out."""
    return pairs_by(DIMENSIONS[name], found().predictions, residuals())


def whole(name: str, predictions: Iterable[Prediction]) -> Pair:
    """Some rows in the fit and left out."""
    both = pair(name, predictions, residuals())
    assert both is not None
    return both


def everything() -> Pair:
    """All rows in the fit and left out."""
    return whole("all rows", found().predictions)


# Headline


def headline() -> str:
    """All rows and the well described ones: in the fit and with each source left out."""
    well = whole("", [each for each in found().predictions if is_well_described(each.reading)])
    every, sources = everything(), by("group")
    rows = [
        ("all rows, in the fit", *_figures(every.inside)),
        ("all rows, their source left out", *_figures(every.left_out)),
        ("well described dense rows, in the fit", *_figures(well.inside)),
        ("well described dense rows, their source left out", *_figures(well.left_out)),
    ]
    head = ("step time", "rows", "mean error", "median", "bias", "in the 80 % interval", "worst row")
    return table(head, rows) + "\n" + _extremes(sources)


def _figures(given: Errors) -> tuple[str, ...]:
    furthest = f"{percent(given.worst.error)} ({given.worst.id})"
    sizes = share(given.mape), share(given.median_absolute_error), percent(given.bias)
    return count(given.rows), *sizes, whole_percent(given.coverage), furthest


def _extremes(sources: Sequence[Pair]) -> str:
    """The worst sources, and the means where every source is one vote."""
    some = [each for each in sources if each.inside.rows >= CALIBRATED_ROWS]
    inside = max(some, key=lambda each: each.inside.mape)
    outside = max(some, key=lambda each: each.left_out.mape)
    one = [share(value) for value in source_mean(sources, lambda e: e.mape)]
    return (
        f"Worst source of {CALIBRATED_ROWS} rows or more in the fit: "
        f"{_named(inside.name, inside.inside)}; left out: {_named(outside.name, outside.left_out)}. "
        f"With each of the {len(sources)} source groups as one vote the mean error is {one[0]} in the fit "
        f"and {one[1]} left out.\n"
    )


def _named(name: str, given: Errors) -> str:
    return f"{name}, {share(given.mape)} over {_rows(given.rows)}"


def _rows(rows: int) -> str:
    return f"{rows:,} row{'s' if rows != 1 else ''}"


def verdict_line() -> str:
    """Memory and verdicts in one paragraph."""
    scores = found().scores
    memory, out, ran = scores.memory, scores.ran_out, scores.all_ran
    assert memory is not None
    return (
        f"Peak memory: {memory.rows} rows, mean error {share(memory.mape)}, median"
        f" {share(memory.median_absolute_error)}, bias {percent(memory.bias)},"
        f" {whole_percent(memory.coverage)} in the 80 % interval, worst {percent(memory.worst.error)}"
        f" ({memory.worst.id}). Of {out.rows} runs that ended out of memory {out.does_not_fit} are called"
        f" *does not fit*, {out.risky} *risky* and {out.fits} *fits*; of {ran.rows:,} that ran,"
        f" {_refused(ran)} are called *does not fit*: {_refused(scores.ran)} of the {scores.ran.rows:,} whose"
        f" source prints recompute and offload, {_refused(scores.ran_unprinted)} of the"
        f" {scores.ran_unprinted.rows:,} whose source does not, which are judged with full recompute.\n"
    )


def _refused(given: Verdicts) -> str:
    return f"{given.does_not_fit} ({share(given.does_not_fit_share or 0.0)})"


# Scores


def pair_table(name: str, pairs: Sequence[Pair]) -> str:
    """Rows by a name, in the fit and left out side by side."""
    head = (name, "rows", "mean, %", "median, %", "bias, %", "inside, %", "worst in the fit")
    return table(head, [(each.name, *_both(each)) for each in pairs])


def _both(given: Pair) -> tuple[str, ...]:
    """In the fit → left out, in percent."""
    a, b = given.inside, given.left_out
    return (
        count(a.rows),
        arrow(f"{a.mape:.1%}", f"{b.mape:.1%}"),
        arrow(f"{a.median_absolute_error:.1%}", f"{b.median_absolute_error:.1%}"),
        arrow(f"{a.bias:+.1%}", f"{b.bias:+.1%}"),
        arrow(f"{a.coverage:.0%}", f"{b.coverage:.0%}"),
        f"{percent(a.worst.error)} ({a.worst.id})",
    )


def arrow(inside: str, left_out: str) -> str:
    """In the fit and left out in one cell that does not break, without the sign of percent."""
    return f"{inside}{GLUE}→{GLUE}{left_out}".replace("%", "").replace("-", "−")


def dimension_table(name: str) -> str:
    """Rows by a dimension of `escala validate --by`; years in order."""
    pairs = by(name)
    return pair_table(name, sorted(pairs, key=lambda each: each.name) if name == "year" else pairs)


def scale_table() -> str:
    """Rows by number of devices."""
    pairs = pairs_by(scale, found().predictions, residuals())
    return pair_table("devices", sorted(pairs, key=lambda each: SIZES.index(each.name)))


def configuration_table() -> str:
    """Rows, configurations and sources as votes."""
    every, sources = everything(), by("group")
    a, b = every.inside, every.left_out
    mean = source_mean(sources, lambda each: each.mape)
    middle = source_mean(sources, lambda each: each.median_absolute_error)
    rows = [
        ("row", a.rows, a.mape, b.mape, a.median_absolute_error, b.median_absolute_error),
        (
            "configuration",
            a.configurations,
            *(a.mape_by_configuration, b.mape_by_configuration),
            *(a.median_by_configuration, b.median_by_configuration),
        ),
        ("source group", len(sources), *mean, *middle),
    ]
    lines = [(name, count(votes), *map(share, figures)) for name, votes, *figures in rows]
    return table(("one vote for each", "votes", "mean", "left out", "median", "left out"), lines)


def well_table() -> str:
    """Well described rows, whole and by accelerator."""
    rows = [each for each in found().predictions if is_well_described(each.reading)]
    parts = pairs_by(DIMENSIONS["accelerator"], rows, residuals())
    without = [each for each in rows if not each.reading.group.startswith("vTrain")]
    return pair_table("", (whole("all", rows), whole("without vTrain", without), *parts))


def coverage_table() -> str:
    """Coverage of 80 % intervals by regime, with the factors."""
    predictions, named = found().predictions, {word: kind for kind, word in WORDS.items()}
    rows = coverages(DIMENSIONS["regime"], predictions, residuals())
    lines = [(*_covered(each), *_factors(named[each.name])) for each in rows]
    lines += [(*_covered(each), "", "") for each in coverages(lambda _: "all", predictions, residuals())]
    lines.append(
        ("each source group as one vote", *_covered(mean_coverage(predictions, residuals()))[1:], "", "")
    )
    head = ("regime", "rows", "in the fit, known stack", "left out", "left out, unseen width")
    return table((*head, "factor, known stack", "factor, new software"), lines)


def _covered(given: Coverage) -> tuple[str, ...]:
    shares = (given.inside, given.left_out, given.unseen)
    return given.name, count(given.rows), *map(whole_percent, shares)


def _factors(kind: Regime) -> tuple[str, str]:
    known, name = assumptions(), f"interval_{kind.name.lower()}"
    return f"{getattr(known, f'{name}_known_ratio'):.2f}", f"{getattr(known, f'{name}_ratio'):.2f}"


def group_table(name: str, groups: Sequence[Group]) -> str:
    """Errors by a name."""
    head = (name, "rows", "mean", "median", "bias", "inside", "worst")
    return table(head, [(each.name, *_figures(each.errors)) for each in groups])


def low_trust_table() -> str:
    """Rows that no other figure contains."""
    scores = found().scores
    low, time = scores.low_trust_time, scores.time
    assert low is not None
    assert time is not None
    return (
        group_table("source", scores.low_trust_time_by_source)
        + f"\nTogether {_rows(low.rows)}: mean error {share(low.mape)}, median"
        f" {share(low.median_absolute_error)}. Counted with the others they would raise the mean error in the"
        f" fit from {share(time.mape)} to {share(mape_together(time, low))}.\n"
    )


def memory_table() -> str:
    """Peak memory by source."""
    return group_table("source", found().scores.memory_by_source)


def counter_table() -> str:
    """Peak memory by counter."""
    return group_table("counter", found().scores.memory_by_counter)


def verdict_table() -> str:
    """What runs that ran and runs that did not are called."""
    scores = found().scores
    rows = [
        ("ended out of memory", scores.ran_out),
        ("ran, recompute and offload printed", scores.ran),
        ("ran, recompute or offload not printed: judged with full recompute", scores.ran_unprinted),
        ("ran, both together", scores.all_ran),
    ]
    head = ("the run", "rows", "*fits*", "*risky*", "*does not fit*", "share of these")
    return table(head, [(name, *_called(each)) for name, each in rows])


def _called(given: Verdicts) -> tuple[str, ...]:
    counts = (given.rows, given.fits, given.risky, given.does_not_fit)
    return *map(count, counts), share(given.does_not_fit_share or 0.0)


def sweep_table() -> str:
    """Choice between published layouts."""
    scores = found().scores
    rows = [*scores.sweeps_by_group, *([scores.sweeps] if scores.sweeps else [])]
    head = ("source", "sweeps", "layouts", "rank", "pairs right", "regret", "rule, mean", "rule, at best")
    return table(head, [_swept(each) for each in rows])


def _swept(given: SweepScores) -> tuple[str, ...]:
    rank = "" if given.spearman is None else f"{given.spearman:.2f}"
    costs = (given.ordered_share, given.regret, given.rule_regret, given.rule_least_regret)
    shares = ("" if cost is None else share(cost) for cost in costs)
    return given.name, count(given.sweeps), count(given.layouts), rank, *shares


def gain_table(gains: Sequence[Gain]) -> str:
    """Published and predicted gains."""
    rows = [
        (
            f"{each.of} over {each.over}",
            f"{each.accelerator}, {'one device' if each.devices == '1' else 'several devices'}",
            each.pairs,
            f"{each.published:.2f}",
            f"{each.predicted:.2f}",
            percent(each.predicted / each.published - 1.0),
        )
        for each in gains
    ]
    return table(("speed of", "on", "pairs", "published", "predicted", "error"), rows)


def precision_table() -> str:
    """What mixed precision gains."""
    return gain_table(precision_gains(found().predictions))


def engine_gain_table() -> str:
    """What other software gains over plain DDP."""
    return gain_table(engine_gains(found().predictions))


# Worst rows


@cache
def reasons() -> dict[str, str]:
    """The reviewed reason of each row that somebody looked at."""
    known = tomllib.loads(REASONS.read_text())["reason"]
    return {row: each["text"] for each in known for row in each["rows"]}


def worst_table() -> str:
    """The rows that are off most, with the reason that a reader found."""
    rows = worst_of(scored_rows(found().predictions, residuals()), WORST)
    head = ("row", "run", "published, s", "predicted, s", "error", "left out", "likely reason")
    return table(head, [_worst(each) for each in rows])


def _worst(given: Prediction) -> tuple[str, ...]:
    seen, published = row_view(given), given.reading.step_s or 1.0
    left_out = math.expm1(residuals()[seen.id].left_out)
    where = f"{seen.devices:,} × {seen.accelerator}, {seen.framework}"
    run = f"{seen.model}, {where}, {given.reading.row.precision}"
    return (
        f"`{seen.id}`",
        run,
        f"{published:.3g}",
        f"{given.step_s:.3g}",
        percent(given.step_s / published - 1.0),
        percent(left_out),
        reasons().get(seen.id, UNEXAMINED),
    )


def plot() -> str:
    """The plot of all rows as SVG, as `escala validate --svg` writes it."""
    return svg(validation_view(found(), SHIPPED, 0))


SECTIONS: dict[str, Callable[[], str]] = {
    **FIT_SECTIONS,
    "headline": headline,
    "verdict_line": verdict_line,
    "configurations": configuration_table,
    "well": well_table,
    **{f"by_{name}": partial(dimension_table, name) for name in ("source", "regime", "arch", "year")},
    "by_accelerator": partial(dimension_table, "accelerator"),
    "by_scale": scale_table,
    "low_trust": low_trust_table,
    "coverage": coverage_table,
    "memory": memory_table,
    "counters": counter_table,
    "verdicts": verdict_table,
    "sweeps": sweep_table,
    "precision": precision_table,
    "engine_gains": engine_gain_table,
    "worst": worst_table,
}
PICTURES: dict[Path, Callable[[], str]] = {ROOT / "docs" / "img" / "calibration.svg": plot}
