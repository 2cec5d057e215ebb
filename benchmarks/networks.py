"""Predictions beside real training on limited networks: `python benchmarks/networks.py [SETTING ...]`.

A setting is hosts x Mbit/s, or hosts x Mbit/s x milliseconds that a packet is under way: 4x200, 2x100x5. Each
takes two to four minutes, on a machine that does nothing else meanwhile, as root, with PyTorch. Everything
is kept in --folder, so that settings, and ways of each, can be run one by one: the table is of all there are.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from netlab.cases import BATCHES, cases
from netlab.hosts import missing
from netlab.truth import Row, Setting, compared, median_error

GRID = ("2x100", "2x200", "4x100", "4x200", "2x100x5", "4x100x5")
BENCH_S = {2: 50.0, 4: 70.0}
FAR_S = 40.0
"""More for a bench of far hosts, whose every decision takes round trips."""
FAMILIES = {
    "replicas (DDP)": (("ddp",), False),
    "shards (FSDP2, HSDP)": (("fsdp", "hsdp"), False),
    "tensors (TP, TP with SP)": (("tp", "sp"), False),
    "stages (GPipe, 1F1B)": (("gpipe", "1f1b"), False),
    "far hosts, all of them": (("ddp", "fsdp", "hsdp", "tp", "sp", "gpipe", "1f1b"), True),
}


def setting(word: str) -> Setting:
    """The setting that a word such as 4x200 or 2x100x5 means."""
    hosts, megabits, *late = word.split("x")
    return Setting(
        hosts=int(hosts), megabits_per_s=float(megabits), delay_s=float(late[0]) / 1e3 if late else 0.0
    )


def table(rows: list[Row]) -> Iterator[str]:
    """One line a case, in Markdown."""
    yield "| network | plan | predicted | measured | error | without messages |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        alone = f"{row.predicted_alone_s:.2f} s, {row.measured_alone_s:.2f} s"
        seconds = f"{row.predicted_s:.2f} s | {row.measured_s:.2f} s"
        yield f"| {row.setting} | {row.case.name} | {seconds} | {row.error:+.1%} | {alone} |"


def summary(rows: list[Row]) -> Iterator[str]:
    """Median and worst absolute error of each family."""
    yield "| family | cases | median error | worst |"
    yield "|---|---|---|---|"
    for name, (ways, is_far) in FAMILIES.items():
        own = [row for row in rows if row.case.way in ways and (row.setting.delay_s > 0) == is_far]
        if own:
            worst = max(own, key=lambda row: abs(row.error))
            where = f"{worst.error:+.1%} ({worst.case.name}; {worst.setting})"
            yield f"| {name} | {len(own)} | {median_error(own):.1%} | {where} |"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("settings", nargs="*", default=GRID, metavar="SETTING")
    options.add_argument("--folder", type=Path, default=Path("networks"))
    options.add_argument("--ways", nargs="+", default=tuple(BATCHES), choices=BATCHES, metavar="WAY")
    options.add_argument("--show", action="store_true", help="only print what is in the folder")
    given = options.parse_args()
    for word in () if given.show else given.settings:
        where = setting(word)
        why = missing(latency=where.delay_s > 0)
        if why:
            print(f"no lab here: {why}", file=sys.stderr)
            return 2
        folder = given.folder / word / "-".join(given.ways)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{where} ...", file=sys.stderr, flush=True)
        bench_s = BENCH_S[where.hosts] + (FAR_S if where.delay_s else 0.0)
        found = compared(where, cases(where.hosts, given.ways), folder.absolute(), bench_s)
        (folder / "rows.json").write_text(json.dumps([row.as_keys() for row in found]))
    files = [file for word in GRID for file in sorted(given.folder.glob(f"{word}/*/rows.json"))]
    rows = [Row.of(keys) for file in files for keys in json.loads(file.read_text())]
    print("\n".join([*summary(rows), "", *table(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
