"""One measurement in a process of its own: `python benchmarks/measure.py NAME` prints it as JSON.

Seconds are CPU seconds of the process (user and system), so that a busy machine does not count; memory is
the largest resident set. NumPy runs on one thread.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"  # before NumPy is imported

HEAVY = ("flwr", "pandas", "scipy", "tensorflow", "torch", "transformers")
ROWS = 16_384
REPEATS = 5
SIZES = (1_024, 4_096, 16_384, 65_536)


def best_s(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The least CPU seconds of some runs."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def estimates(name: str) -> dict[str, float]:
    """Complete estimates a second on one core: memory, step, energy, utilisation, reject bits."""
    from questions import QUESTIONS, sample

    from escala.model.estimate import estimate

    problem = QUESTIONS[name].problem()
    plans = sample(problem, ROWS)
    feasible = float((estimate(problem, plans).reject == 0).mean())
    cpu_s = best_s(lambda: estimate(problem, plans))
    return {"rows": len(plans), "feasible_share": feasible, "cpu_s": cpu_s, "per_s": len(plans) / cpu_s}


def search(name: str) -> dict[str, float]:
    """One full search of the unrestricted space, catalog reading included."""
    from questions import QUESTIONS

    start = time.process_time()
    from escala.planning.search import search as ask

    found = ask(QUESTIONS[name].problem())
    cpu_s = time.process_time() - start
    best_s = 0.0 if found.ranking is None else float(found.ranking.step_s[0])
    return {
        "cpu_s": cpu_s,
        "considered": found.considered,
        "estimated": found.estimated,
        "best_step_s": best_s,
    }


def linearity(name: str) -> dict[str, float]:
    """Microseconds a plan at growing numbers of plans, and the last over the third."""
    from questions import QUESTIONS, sample

    from escala.model.estimate import estimate

    problem = QUESTIONS[name].problem()
    plans = sample(problem, SIZES[-1])
    each = {}
    for rows in SIZES:
        few = plans.take(slice(0, rows))
        each[f"{rows}"] = best_s(partial(estimate, problem, few), 3) / rows * 1e6
    return {"ratio": each[f"{SIZES[-1]}"] / each[f"{SIZES[-2]}"], **each}


def startup(_: str) -> dict[str, float]:
    """CPU seconds of `escala --help`, best of five fresh processes."""
    script = Path(sys.executable).with_name("escala")
    seconds = []
    for _repeat in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([script, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"cpu_s": min(seconds), "peak_mb": peak_mb}


def imports(_: str) -> dict[str, float]:
    """CPU seconds of `import escala`, modules that it loads, and heavy ones among them."""
    start = time.process_time()
    before = len(sys.modules)
    import escala  # noqa: F401

    cpu_s = time.process_time() - start
    heavy = len(set(HEAVY) & set(sys.modules))
    return {"cpu_s": cpu_s, "modules": len(sys.modules) - before, "heavy": heavy}


KINDS: dict[str, Callable[[str], dict[str, float]]] = {
    "estimates": estimates,
    "search": search,
    "linearity": linearity,
    "startup": startup,
    "imports": imports,
}


def main() -> None:
    kind, _, name = sys.argv[1].partition(":")
    found = KINDS[kind](name)
    own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peak_mb": own_mb} | found))


if __name__ == "__main__":
    main()
