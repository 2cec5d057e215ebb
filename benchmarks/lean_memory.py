"""Peak memory of published runs that save memory: adapters, 4-bit weights, offload, long context, ZeRO.

    python benchmarks/lean_memory.py [--rows] [TABLE.csv]

Every row of the shipped tables (or of TABLE.csv, with the same columns) that prints a peak, by what saves
memory; median and worst error of each family, of all, and of those that are trusted. `--rows` prints each.
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from escala.calibration.reading import Reading, Skip, read
from escala.calibration.rows import Row
from escala.calibration.scoring import predict
from escala.calibration.tables import read_rows
from escala.model.workload import Method
from escala.units import GIB

LONG_TOKENS = 1 << 20
NONE = ("", "none", "no", "off")


def family(row: Row) -> str | None:
    """What saves memory in a row; None where nothing of it does."""
    if (row.sequence_tokens or 0) >= LONG_TOKENS:
        return "context of a million tokens"
    if row.offload.lower() not in NONE:
        return "offload"
    if "OpenTau" in row.source:
        return "frozen backbone, ZeRO-2 against ZeRO-3"
    method = row.method.lower().replace("-", "")
    known = {"qlora": "QLoRA", Method.LORA: "LoRA", Method.ADAPTER: "adapters"}
    return known.get(method)


def told(found: Reading) -> tuple[str, float]:
    """One row in words, and the predicted peak over the printed one."""
    guess = predict([found])[0].memory_bytes
    assert found.memory_bytes is not None
    ratio, row = guess / found.memory_bytes, found.row
    what = f"{row.id:18s} {row.model[:24]:24s} {found.problem.engine.name:14s} {row.offload[:22]:22s}"
    figures = f"{found.memory_bytes / GIB:6.1f} GiB, predicted {guess / GIB:6.1f}"
    return f"  {what} {figures} {ratio - 1:+7.1%} {'' if found.is_trusted else row.trust}", ratio


def summary(name: str, ratios: list[float]) -> str:
    """Rows, median error and worst error of a family."""
    errors = sorted(abs(each - 1) for each in ratios)
    return f"{name}: {len(errors)} rows, median {statistics.median(errors):.1%}, worst {errors[-1]:.1%}"


def main(arguments: list[str]) -> int:
    """Print every family; 1 where no row can be read."""
    names = [each for each in arguments if not each.startswith("--")]
    found: defaultdict[str, list[tuple[str, float, bool]]] = defaultdict(list)
    skipped: defaultdict[str, int] = defaultdict(int)
    for row in read_rows(Path(names[0]) if names else None).rows:
        kind = family(row)
        reading = read(row) if kind is not None and row.memory is not None else None
        if kind is None or reading is None:
            continue
        if isinstance(reading, Skip) or reading.memory_bytes is None:
            skipped[kind] += 1
            continue
        found[kind].append((*told(reading), reading.is_trusted))
    for kind, rows in found.items():
        print(summary(kind, [ratio for _, ratio, _ in rows]), f"({skipped[kind]} cannot be read)")
        if "--rows" in arguments:
            print(*(text for text, _, _ in sorted(rows, key=lambda each: -abs(each[1] - 1))), sep="\n")
    every = [(ratio, is_trusted) for rows in found.values() for _, ratio, is_trusted in rows]
    if not every:
        return 1
    print(summary("all", [ratio for ratio, _ in every]))
    print(summary("trusted", [ratio for ratio, is_trusted in every if is_trusted]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
