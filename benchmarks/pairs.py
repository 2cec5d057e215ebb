"""How far two benches of one machine differ: the median over pairs of bench files, for each fitted value.

    escala bench --device cpu -o a.json; escala bench --device cpu -o b.json  # and so on, on an idle machine
    python benchmarks/pairs.py a.json b.json c.json d.json                    # a with b, c with d

A difference is larger / smaller - 1. Values above `--limit` come first, as rows of a table.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from escala.formats.bench_cluster import bench_of
from escala.formats.bench_record import Bench
from escala.formats.files import read_keys


def values(bench: Bench) -> Iterator[tuple[str, float]]:
    """Best and typical times but those of single messages, which lines stand for; both lines; what hides."""
    alone = [each for each in bench.timed if each.part != "network"]
    yield from ((each.name, each.best_s) for each in alone)
    yield from ((f"typical {each.name}", each.usual_s) for each in alone)
    for each in bench.lines:
        name = f"{each.level} {each.operation} of {each.ranks}"
        yield f"alpha, {name}", each.alpha_s.value
        yield f"beta, {name}", each.beta_s_per_byte.value
        if each.typical_alpha_s is not None and each.typical_beta_s_per_byte is not None:
            yield f"typical alpha, {name}", each.typical_alpha_s
            yield f"typical beta, {name}", each.typical_beta_s_per_byte
    yield from ((f"hidden share, {each.level}", each.hidden_share) for each in bench.overlaps)


def difference(one: float, other: float) -> float:
    """Larger / smaller - 1."""
    least, most = sorted((one, other))
    return 0.0 if most == least else most / least - 1.0 if least > 0.0 else math.inf


def main() -> None:
    """Compare the pairs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bench", nargs="+", type=Path, help="bench files, two of a pair after each other")
    parser.add_argument("--limit", type=float, default=0.15)
    given = parser.parse_args()
    if len(given.bench) % 2:
        parser.error(f"{len(given.bench)} files are no pairs; give an even number")
    found = [dict(values(bench_of(read_keys(file), str(file)))) for file in given.bench]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    shared = [name for name in found[0] if all(name in each for each in found)]
    rows = {name: [difference(one[name], other[name]) for one, other in pairs] for name in shared}
    far = {name: row for name, row in rows.items() if median(row) > given.limit}
    print(f"{len(pairs)} pairs, {len(rows)} values, {len(far)} differ by more than {given.limit:.0%}\n")
    print("| value | median | pairs |")
    print("|---|---|---|")
    for name, row in sorted((far or rows).items(), key=lambda item: -median(item[1])):
        print(f"| {name} | {median(row):.0%} | {', '.join(f'{each:.0%}' for each in row)} |")


if __name__ == "__main__":
    main()
