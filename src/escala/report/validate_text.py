"""A validation for people: headline, errors by group, memory, sweeps, worst rows, what was left out."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.calibration.leftout import Pair
from escala.calibration.samples import Errors, Group
from escala.calibration.scores import Scores, Verdicts
from escala.calibration.sweeps import SweepScores
from escala.errors import one_line
from escala.report.layout import (
    GLUE,
    QUIET,
    STRONG,
    add_row,
    apart,
    flow,
    glued,
    put,
    put_table,
    table_of,
    width_of,
)
from escala.report.numbers import count, in_percent, plural, seconds
from escala.report.operations_view import operation_lines
from escala.report.validate_skips import print_skips, said
from escala.report.validate_view import SHIPPED, RowView, Validated
from escala.units import digits

LONGEST: Final = 200  # letters of a name from a table
TABLE: Final = 64  # columns that names and six numbers need
NONE: Final = "–"
ERRORS: Final = ("rows", "MAPE", "median", "bias", "inside", "worst")
SWEPT: Final = (
    "Regret: the layout with the best prediction over the best published; rule: the same for the usual rule "
    "table, on average and at best over what it allows"
)
SWEEPS: Final = ("sweeps", "rank", "pairs", "regret", "rule", "at best")


def print_validated(console: Console, given: Validated, by: str) -> None:
    """Everything that `escala validate` shows."""
    scores = given.scores
    print_headline(console, given)
    print_groups(console, f"Step time by {by}", scores.time_by[by])
    print_groups(console, "Step time of low-trust rows by source", scores.low_trust_time_by_source)
    print_groups(console, "Memory by counter", scores.memory_by_counter)
    print_groups(console, "Memory by source", scores.memory_by_source)
    print_sweeps(console, scores.sweeps_by_group)
    print_worst(console, given.worst)
    print_skips(console, given)


def print_headline(console: Console, given: Validated) -> None:
    """How many rows, and how far the predictions are off."""
    scores = given.scores
    table = SHIPPED if given.table == SHIPPED else f"of {one_line(given.table)}"
    put(console, f"{count(given.rows)} row{plural(given.rows)} {table}: {count(given.read)} scored")
    if given.read == 0:
        put(console, Text("no row can be scored; the reasons are below", style="red"))
    if scores.time is not None:
        put(console, Text(time_line(scores.time), style=STRONG))
        for line in [] if given.fit is None else seen_lines(given.fit):
            put(console, Text(line, style=STRONG))
        said(console, "Time", _time(scores.time))
    if scores.memory is not None:
        said(console, "Memory", [memory_line(scores.memory)])
    said(console, "Fit", fit_lines(scores))
    if scores.sweeps is not None:
        said(console, "Sweeps", sweep_lines(scores.sweeps))
    if given.operations is not None:
        said(console, "Single", operation_lines(given.operations.scores))
    put(console)


def time_line(errors: Errors) -> str:
    """The result in one line."""
    return (
        f"Step time: MAPE {in_percent(errors.mape)} %, median {in_percent(errors.median_absolute_error)} %; "
        f"the 80 % interval holds {in_percent(errors.coverage)} %"
    )


def seen_lines(fit: Pair) -> list[str]:
    """What the errors are worth: the fit has seen these rows, and here they are without their source."""
    mean = in_percent(fit.inside.mape), in_percent(fit.left_out.mape)
    median = (in_percent(each.median_absolute_error) for each in (fit.inside, fit.left_out))
    return [
        "Mean: in the fit {} %; its source left out {} %".format(*mean),
        "Median: in the fit {} %; its source left out {} %".format(*median),
    ]


def _time(errors: Errors) -> list[str]:
    rows, configurations = errors.rows, errors.configurations
    mape, median = in_percent(errors.mape_by_configuration), in_percent(errors.median_by_configuration)
    return [
        f"{count(rows)} trusted row{plural(rows)} · bias {in_percent(errors.bias, '+')} % · "
        f"interval ÷ and × {digits(errors.interval_ratio)} · {worst_line(errors)}",
        f"{count(configurations)} configuration{plural(configurations)}: MAPE {mape} %, median {median} %",
    ]


def worst_line(errors: Errors) -> str:
    """The row that is off most."""
    return f"worst {in_percent(errors.worst.error, '+')} % ({errors.worst.id})"


def memory_line(errors: Errors) -> str:
    """The errors of memory in one line."""
    return (
        f"{count(errors.rows)} row{plural(errors.rows)} · MAPE {in_percent(errors.mape)} % · "
        f"median {in_percent(errors.median_absolute_error)} % · bias {in_percent(errors.bias, '+')} % · "
        f"the 80 % interval holds {in_percent(errors.coverage)} % · {worst_line(errors)}"
    )


def fit_lines(given: Scores) -> list[str]:
    """What runs that ended out of memory are called, and how many that ran are called impossible."""
    dead = given.ran_out
    called = f"{dead.does_not_fit} does not fit, {dead.risky} risky, {dead.fits} fits"
    lines = (
        [f"{count(dead.rows)} run{plural(dead.rows)} out of memory, called: {called}"] if dead.rows else []
    )
    known = _ran_line(given.ran, "that ran, recompute printed")
    unknown = _ran_line(given.ran_unprinted, "that ran, recompute not printed and taken as full")
    every = _ran_line(given.all_ran, "that ran, both together") if known and unknown else []
    return [*lines, *known, *unknown, *every]


def _ran_line(ran: Verdicts, which: str) -> list[str]:
    if ran.does_not_fit_share is None:
        return []
    share = in_percent(ran.does_not_fit_share)
    return [f"{count(ran.rows)} run{plural(ran.rows)} {which}: {share} % called does not fit"]


def sweep_lines(given: SweepScores) -> list[str]:
    """How well layouts are ranked and chosen, and what the usual rule would have cost."""
    pairs = "" if given.ordered_share is None else f" · {in_percent(given.ordered_share)} % of pairs right"
    rank = "" if given.spearman is None else f" · rank correlation {given.spearman:.2f}"
    ranked = f"{given.sweeps} sweep{plural(given.sweeps)}, {count(given.layouts)} layouts{rank}{pairs}"
    chosen = f"the layout with the best prediction costs {in_percent(given.regret)} % over the best"
    if given.ruled_regret is None or given.rule_regret is None or given.rule_least_regret is None:
        return [ranked, chosen]
    rule = f"{in_percent(given.rule_regret)} %, at best {in_percent(given.rule_least_regret)} %"
    return [
        ranked,
        chosen,
        f"by the usual rule {rule} · by prediction there {in_percent(given.ruled_regret)} %",
    ]


def print_groups(console: Console, title: str, groups: Sequence[Group]) -> None:
    """The errors of each group, in percent."""
    if not groups:
        return
    put(console, Text(f"{title}, in percent", style=STRONG))
    _put_rows(console, ERRORS, [(each.name, error_cells(each.errors)) for each in groups])


def _put_rows(console: Console, heads: Sequence[str], rows: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    """Names and their numbers: a table, or in a narrow terminal the numbers below each name."""
    if width_of(console) < TABLE:
        for name, cells in rows:
            put(console, one_line(name, LONGEST), indent=2)
            numbers = [f"{head}{GLUE}{cell}" for head, cell in zip(heads, cells, strict=True)]
            put(console, Text(", ".join(numbers), style=QUIET), indent=4)
        put(console)
        return
    table = table_of(console, (("", "text"), *((head, "right") for head in heads)))
    for name, cells in rows:
        add_row(table, one_line(name, LONGEST), *cells)
    put_table(console, table)


def error_cells(errors: Errors) -> tuple[str, ...]:
    """Errors under the columns of ERRORS, in percent."""
    return (
        count(errors.rows),
        in_percent(errors.mape),
        in_percent(errors.median_absolute_error),
        in_percent(errors.bias, "+"),
        in_percent(errors.coverage),
        in_percent(errors.worst.error, "+"),
    )


def print_sweeps(console: Console, groups: Sequence[SweepScores]) -> None:
    """How well the layouts of each series are ranked, and the regret of each way to choose."""
    if not groups:
        return
    put(
        console,
        Text("Choice between published layouts, in percent but for the rank correlation", style=STRONG),
    )
    put(console, Text(SWEPT, style=QUIET), indent=2)
    _put_rows(console, SWEEPS, [(each.name, sweep_cells(each)) for each in groups])


def sweep_cells(given: SweepScores) -> tuple[str, ...]:
    """A series of sweeps under the columns of SWEEPS."""
    return (
        count(given.sweeps),
        NONE if given.spearman is None else f"{given.spearman:.2f}",
        _known(given.ordered_share),
        in_percent(given.regret),
        _known(given.rule_regret),
        _known(given.rule_least_regret),
    )


def _known(share: float | None) -> str:
    return NONE if share is None else in_percent(share)


def print_worst(console: Console, rows: Sequence[RowView]) -> None:
    """The rows that are off most: published and predicted seconds, and how the row was read."""
    if not rows:
        return
    put(console, Text("Worst rows: published, predicted, error in percent", style=STRONG))
    for each in rows:
        published, predicted, error = worst_numbers(each)
        apart(console, Text(each.id), Text(f"{published:>9} {predicted:>9} {error:>6}"), indent=2)
        parts = [Text(glued(part), style=QUIET) for part in how_read(each)]
        for line in flow(parts, width_of(console) - 4):
            put(console, line, indent=4)
    put(console)


def worst_numbers(given: RowView) -> tuple[str, str, str]:
    """Published and predicted seconds, and the error in percent."""
    assert given.published_s is not None
    assert given.error is not None
    return seconds(given.published_s), seconds(given.predicted_s.value), in_percent(given.error, "+")


def how_read(given: RowView) -> list[str]:
    """Network, machine, layout and software as the row was read, and what its source does not print."""
    parts = [one_line(given.model, LONGEST), f"{count(given.devices)} × {given.accelerator}", given.framework]
    parts += given.layout.split(" · ")
    return [*parts, f"not printed: {', '.join(given.imputed)}"] if given.imputed else parts
