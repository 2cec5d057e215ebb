"""Speed and memory of escala beside their targets: `python benchmarks/run.py [--json] [NAME ...]`.

Each measurement runs in a process of its own, one after the other (see `measure.py`). Numbers belong to the
machine that they were measured on; no test asserts them.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
Numbers = dict[str, float]


@dataclass(frozen=True)
class Benchmark:
    """One measurement: how it is called, its title, its target in words, and how its result reads."""

    name: str
    title: str
    target: str
    words: Callable[[Numbers], str]
    is_met: Callable[[Numbers], bool]


def _rate(found: Numbers) -> str:
    return f"{found['per_s']:,.0f}/s ({found['feasible_share']:.0%} feasible)"


def _search(found: Numbers) -> str:
    return f"{found['cpu_s']:.2f} s, {found['considered']:,.0f} plans considered"


def _linear(found: Numbers) -> str:
    each = ", ".join(f"{value:.2f}" for name, value in found.items() if name.isdigit())
    return f"{each} us a plan; last two {found['ratio']:.2f} x"


def _fast(found: Numbers) -> bool:
    return found["per_s"] >= 300_000


def _quick(found: Numbers) -> bool:
    return found["cpu_s"] <= 2 and found["peak_mb"] <= 600


RATE = "300,000/s, aim 1,000,000"
QUICK = "2 s, 600 MB"
BENCHMARKS = (
    Benchmark("estimates:llama-405b", "estimates, Llama 3.1 405B", RATE, _rate, _fast),
    Benchmark("estimates:gpt3-175b", "estimates, GPT-3 175B", RATE, _rate, _fast),
    Benchmark("search:gpt3-175b", "search, GPT-3 175B on 1,024 A100", QUICK, _search, _quick),
    Benchmark("search:llama-405b", "search, Llama 3.1 405B on 16,384 H100", QUICK, _search, _quick),
    Benchmark("search:deepseek-v3", "search, DeepSeek-V3 on 2,048 H800", QUICK, _search, _quick),
    Benchmark(
        "search:100k", "search, Llama 3.1 405B on 100,352 H100", "10 s", _search, lambda f: f["cpu_s"] <= 10
    ),
    Benchmark(
        "linearity:llama-405b", "1k, 4k, 16k, 64k plans", "linear", _linear, lambda f: f["ratio"] <= 1.5
    ),
    Benchmark(
        "startup", "escala --help", "0.35 s", lambda f: f"{f['cpu_s']:.2f} s", lambda f: f["cpu_s"] <= 0.35
    ),
    Benchmark(
        "imports",
        "import escala",
        "no heavy library",
        lambda f: f"{f['cpu_s']:.2f} s, {f['modules']:.0f} modules, {f['heavy']:.0f} heavy",
        lambda f: f["heavy"] == 0,
    ),
)


def measured(benchmark: Benchmark) -> Numbers:
    """The numbers of one benchmark, from a fresh process."""
    command = [sys.executable, str(HERE / "measure.py"), benchmark.name]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{benchmark.name} failed:\n{done.stderr}")
    found: Numbers = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of escala beside their targets.")
    parser.add_argument("names", nargs="*", help="benchmarks to run, by the start of their name")
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")
    asked = parser.parse_args()
    chosen = [b for b in BENCHMARKS if not asked.names or b.name.startswith(tuple(asked.names))]

    results = {}
    if not asked.json:
        print(f"Python {platform.python_version()}, {platform.machine()}, CPU seconds, one process each\n")
        print(f"{'':40} {'measured':50} {'peak':>8}  target")
    for benchmark in chosen:
        found = results[benchmark.name] = measured(benchmark)
        if not asked.json:
            mark = "met" if benchmark.is_met(found) else "missed"
            print(
                f"{benchmark.title:40} {benchmark.words(found):50} {found['peak_mb']:5.0f} MB"
                f"  {benchmark.target} ({mark})",
                flush=True,
            )
    if asked.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
