"""Time and peak memory of the event engine: 100,000 devices, 1,000 rounds, records written as they come.

    python benchmarks/federated_events.py [--clients 100000] [--rounds 1000] [--cohort 100]

Prints one line for each policy and for buffered updates, in one process each, so that peaks do not mix.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path

from escala.federated.fleet import fleet_of
from escala.federated.reading import example_text, scenario_from_keys
from escala.federated.scenario import Scenario
from escala.federated.simulate import Case, event_rounds, run
from escala.federated.training import Algorithm, Codec, Selection

CASES = (*(str(policy) for policy in Selection), "fedbuff")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=100)
    asked = parser.parse_args()
    print(f"{asked.clients:,} devices, {asked.rounds:,} rounds, {asked.cohort:,} updates a round")
    print(f"{'case':<12}{'wall':>8}{'CPU':>8}{'peak':>10}")
    context = multiprocessing.get_context("spawn")
    for name in CASES:
        with context.Pool(1) as pool:
            wall_s, cpu_s, peak_mb = pool.apply(timed, (name, asked.clients, asked.rounds, asked.cohort))
        print(f"{name:<12}{wall_s:>6.1f} s{cpu_s:>6.1f} s{peak_mb:>7.0f} MB", flush=True)


def timed(name: str, clients: int, rounds: int, cohort: int) -> tuple[float, float, float]:
    """Wall and processor seconds from the scenario to the last line, and the process's peak memory."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    scenario = population(name, clients, cohort)
    with tempfile.TemporaryDirectory() as folder:
        case = Case(scenario=scenario, fleet=fleet_of(scenario, 0), file=Path(folder) / "rounds.jsonl")
        run(case, "events", event_rounds(case, rounds), rounds, lambda *_: None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    return time.perf_counter() - began_s, time.process_time() - began_cpu_s, peak_bytes / 1e6


def population(name: str, clients: int, cohort: int) -> Scenario:
    """The phones of the worked scenario, so many of them, in the same shares of classes."""
    scenario = scenario_from_keys(tomllib.loads(example_text("phones-keyboard")))
    whole = sum(each.clients for each in scenario.clients)
    classes = [replace(each, clients=each.clients * clients // whole) for each in scenario.clients]
    classes[-1] = replace(classes[-1], clients=clients - sum(each.clients for each in classes[:-1]))
    training = replace(scenario.training, clients_per_round=cohort, codec_up=Codec(kind="int8"))
    if name == "fedbuff":
        training = replace(training, algorithm=Algorithm.FEDBUFF, buffer=max(1, cohort // 10))
    else:
        over_selection = 1.0 if name == Selection.POISSON else training.over_selection
        training = replace(training, selection=Selection(name), over_selection=over_selection)
    return replace(scenario, clients=tuple(classes), training=training)


if __name__ == "__main__":
    main()
