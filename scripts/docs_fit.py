"""Sections of docs/accuracy.md on what was fitted to what, and what no row covers. Formats only."""

from collections.abc import Callable, Sequence

from docs_rows import count, found, readings, whole_percent
from docs_tables import number, table

from escala.calibration.contents import (
    assumed_fields,
    contents,
    unmeasured_accelerators,
    unmeasured_engines,
)
from escala.calibration.evidence import GROUPS, FreeNumber, free_numbers, votes
from escala.calibration.leftout import changed_rows, residuals
from escala.calibration.sample import EXPERTS_WEIGHT, IMPUTED_WEIGHT, MOST_ROWS, SLOW_WEIGHT
from escala.catalog.loader import data_file, read_toml


def fit_facts() -> str:
    """What the fit stands on."""
    run, scores = read_toml(data_file("fitted.toml"))["run"], found()
    held, rows = votes(readings()), scores.table.rows
    low = sum(not each.is_trusted for each in readings())
    stale = changed_rows(scores.predictions, residuals())
    facts = [
        ("published rows", f"{len(rows):,} of {len({row.source for row in rows})} sources"),
        ("read", f"{len(readings()):,}; {sum(scores.reasons.values())} are skipped, with reasons below"),
        ("low trust, never fitted", low),
        (
            "in the fit",
            f"{run['rows']:,}, in {held.configurations:,} configurations and {run['groups']} groups",
        ),
        ("votes after weighting", f"{held.votes:.0f}; at the cap: {', '.join(held.capped)}"),
        ("free numbers", run["numbers"]),
        ("effective numbers", f"{run['effective_numbers']}: the sum of the shares that the data decide"),
        ("date", run["date"]),
        ("digest of rows and list", f"`{run['digest']}`"),
        ("predicted otherwise than in that fit", f"{_rows(stale)} by more than 1 % (0 right after a fit)"),
    ]
    return table(("what", "value"), facts)


def _rows(rows: int) -> str:
    return f"{rows:,} row{'s' if rows != 1 else ''}"


def weighting() -> str:
    """What a row counts."""
    rows = [
        ("repeats of one configuration", "one vote together"),
        ("a source group", f"at most {MOST_ROWS:.0f} votes"),
        ("mixture of experts", f"× {EXPERTS_WEIGHT:g}"),
        ("slow network, consumer or old device", f"× {SLOW_WEIGHT:g}"),
        ("a field is assumed, other than link and device memory", f"× {IMPUTED_WEIGHT:g}"),
    ]
    return table(("rows", "weight"), rows)


def imputed_fields() -> str:
    """Fields that sources do not print, in one line."""
    return " · ".join(f"{name} {rows:,}" for name, rows in assumed_fields(readings()).items()) + "\n"


def free_table() -> str:
    """Every number that the fit moves, in four groups."""
    known = free_numbers()
    far = [each for each in known if each.moved > 2]
    weak = sum(each.share < 0.1 for each in known)
    parts = [f"**{group.capitalize()}**\n\n" + _free_part(known, group) for group in GROUPS]
    names = ", ".join(f"`{each.field}` ({each.name})" for each in far) or "none"
    return (
        "\n".join(parts) + f"\nOf {len(known)} numbers {weak} stay where their prior is (the data decide less"
        f" than a tenth). Moved by more than two prior standard deviations: {names}.\n"
    )


def _free_part(known: Sequence[FreeNumber], group: str) -> str:
    rows = [
        (
            f"`{each.field}`",
            each.name,
            number(each.low) if each.low == each.high else f"{number(each.low)} to {number(each.high)}",
            f"{each.factor:.3f}",
            f"{each.sd:.3f}",
            f"{each.prior_sd:g}",
            whole_percent(each.share),
        )
        for each in known
        if each.group == group
    ]
    return table(("number", "of", "record", "factor", "sd", "prior sd", "data decide"), rows)


def skip_table() -> str:
    """Rows that are not scored."""
    return table(("reason", "rows"), [(why, count(rows)) for why, rows in found().reasons.items()])


def content_table() -> str:
    """Techniques with their rows."""
    rows = [(each.name, count(each.timed), each.weighed, each.groups) for each in contents(readings())]
    return table(("technique", "rows with a time", "rows with a memory", "source groups"), rows)


def absent_list() -> str:
    """Engines and devices of the catalog without a row."""
    of_engines = ", ".join(f"`{name}`" for name in unmeasured_engines(readings()))
    devices = ", ".join(f"`{name}`" for name in unmeasured_accelerators(readings()))
    return f"- Engines without a row: {of_engines}.\n- Devices without a row: {devices}.\n"


FIT_SECTIONS: dict[str, Callable[[], str]] = {
    "fit_facts": fit_facts,
    "weighting": weighting,
    "imputed": imputed_fields,
    "free": free_table,
    "skips": skip_table,
    "contents": content_table,
    "absent": absent_list,
}
