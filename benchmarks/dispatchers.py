"""Which dispatcher of tokens is fastest, published and predicted, for each layout that was run with several.

    python benchmarks/dispatchers.py              # rows that escala ships
    python benchmarks/dispatchers.py TABLE.csv    # own rows, in the columns of `escala validate`

A case is a network on a cluster with one layout, of which rows differ in the dispatcher alone; a dispatcher
that was run over several transports counts with its fastest. Exit code 1 below four fifths of the cases.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from escala.calibration import Reading, read, read_rows
from escala.model.estimate import estimate
from escala.model.plan import Dispatcher, Plans

WANTED_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One dispatcher in one case: its rows, the fastest published and the predicted seconds of a step."""

    dispatcher: Dispatcher
    rows: tuple[str, ...]
    published_s: float
    predicted_s: float


def cases(readings: Iterable[Reading]) -> dict[str, list[Way]]:
    """Cases with more than one dispatcher."""
    found: dict[str, dict[Dispatcher, list[Reading]]] = {}
    for each in readings:
        if "dispatcher" in each.row.tags and each.step_s is not None:
            ways = found.setdefault(case_of(each), {})
            ways.setdefault(each.plan.dispatcher, []).append(each)
    return {case: [way(*each) for each in ways.items()] for case, ways in found.items() if len(ways) > 1}


def case_of(given: Reading) -> str:
    """Network, devices and layout without the dispatcher."""
    row, plan = given.row, given.plan
    overlap = "overlap" if given.traits.overlaps_experts else "no overlap"
    layout = f"TP {plan.tp} PP {plan.pp} v {plan.virtual_stages} EP {plan.ep} mb {plan.micro_batch}"
    return f"{row.model}, {row.devices} x {given.problem.accelerator.name}, {layout}, {overlap}"


def way(dispatcher: Dispatcher, readings: list[Reading]) -> Way:
    """Published and predicted seconds of one dispatcher."""
    result = estimate(readings[0].problem, Plans.of(replace(readings[0].plan, dispatcher=dispatcher)))
    return Way(
        dispatcher=dispatcher,
        rows=tuple(each.row.id for each in readings),
        published_s=min(each.step_s for each in readings if each.step_s is not None),
        predicted_s=float(result.step_s[0]),
    )


def best(ways: list[Way], name: str) -> Dispatcher:
    """The fastest by one of the two seconds."""
    return min(ways, key=lambda each: float(getattr(each, name))).dispatcher


def main() -> None:
    """Print the table; rows that a source warns of are left out."""
    table = read_rows(Path(sys.argv[1])) if len(sys.argv) > 1 else read_rows()
    readings = (each for each in map(read, table.rows) if isinstance(each, Reading) and each.is_trusted)
    found, right = cases(readings), 0
    for case, ways in found.items():
        said, seen = best(ways, "predicted_s"), best(ways, "published_s")
        right += said is seen
        print(f"{case}: {'right' if said is seen else 'WRONG'}")
        for each in ways:
            name, rows = each.dispatcher.name.lower().replace("_", "-"), ", ".join(each.rows)
            seconds = f"published {each.published_s:6.2f} s, predicted {each.predicted_s:6.2f} s"
            print(f"  {name:10s} {seconds}  {rows}")
    if not found:
        sys.exit("no case has rows of two dispatchers")
    print(f"best dispatcher right in {right} of {len(found)} cases ({right / len(found):.1%})")
    sys.exit(0 if right >= WANTED_SHARE * len(found) else 1)


if __name__ == "__main__":
    main()
