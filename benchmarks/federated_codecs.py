"""What codecs save and cost: bytes, accuracy, rounds to 85 %; and what secure aggregation costs beside plain.

    python benchmarks/federated_codecs.py [--seeds 3] [--rounds 40] [--secure]

Digits, MLP of 17,226 weights, 20 clients of 64 samples, labels by Dirichlet 0.5, 5 local epochs, batch 16,
SGD 0.1, everybody every round. With --secure: 10 clients over the Grid in this process, three rounds each.
"""

import argparse
import time
from dataclasses import replace
from statistics import mean

import numpy as np

from escala.federated.codecs import SEPARATOR, pack, update_bytes
from escala.federated.fleet import fleet_of, no_history
from escala.federated.learning import Learning
from escala.federated.order import generator
from escala.federated.partition import exact
from escala.federated.reading import scenario_from_keys
from escala.federated.scenario import Scenario
from escala.federated.task import digits
from escala.federated.training import Codec
from escala.federated.weights import Weights

CODECS = {
    "none": Codec(),
    "int8": Codec(kind="int8", has_feedback=True),
    "top-k 10 %": Codec(kind="top-k", keep_ratio=0.1, has_feedback=True),
    "top-k 1 %": Codec(kind="top-k", keep_ratio=0.01, has_feedback=True),
}
TARGET = 0.85
COUNT_BYTES = len("num-examples") + 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--secure", action="store_true")
    asked = parser.parse_args()
    if asked.secure:
        secure()
        return
    print(f"{'codec':<12}{'kB up':>8}{'accuracy':>25}{'rounds to 85 %':>18}{'kB to 85 %':>12}", flush=True)
    for name, codec in CODECS.items():
        runs = [learnt(codec, seed, asked.rounds) for seed in range(asked.seeds)]
        kilobytes = runs[0][0] / 1e3
        last = [run[1] for run in runs]
        hits = [run[2] for run in runs]
        told = f"{mean(last):.3f} ({min(last):.3f} to {max(last):.3f})"
        rounds = f"{mean(hits):.1f} ({min(hits)} to {max(hits)})"
        print(f"{name:<12}{kilobytes:>8.1f}{told:>25}{rounds:>18}{kilobytes * mean(hits):>12.0f}", flush=True)


def learnt(codec: Codec, seed: int, rounds: int) -> tuple[int, float, int]:
    """Bytes up of a client and round, accuracy after all rounds, first round at the target (0: never)."""
    scenario, task = population(codec, seed, 20), digits()
    run = Learning(scenario, task, exact(task, scenario.clients, seed), print)
    sent = message_bytes(codec, run.state.server.weights)
    accuracies = [record.metrics["accuracy"] for record in run.rounds(rounds)]
    hit = next((place for place, each in enumerate(accuracies, 1) if each >= TARGET), 0)
    return sent, accuracies[-1], hit


def message_bytes(codec: Codec, weights: Weights) -> int:
    """Bytes of a packed update, the names of its arrays and a count of samples, as Flower counts them."""
    packed, _ = pack(codec, weights, {}, generator(0, -1))
    names = sum(
        len(key.removesuffix(f"{SEPARATOR}values") if codec.kind == "none" else key) for key in packed
    )
    return update_bytes(codec, {name: each.shape for name, each in weights.items()}) + names + COUNT_BYTES


def population(codec: Codec, seed: int, clients: int) -> Scenario:
    """Boards alike, on a line on which nothing is lost."""
    data = {"samples": 64, "sample_size": "256 B", "skew": "dirichlet", "concentration": 0.5}
    devices = {"name": "boards", "count": clients, "device": "raspberry-pi-4", "access": "fixed"}
    work = {"local_epochs": 5, "batch": 16, "learning_rate": 0.1, "seed": seed}
    keys: dict[str, object] = {
        "name": "codecs",
        "model": {"name": "digits", "weights": 17226, "forward_flop_per_sample": "34 kFLOP"},
        "training": {"rounds": 40, "clients_per_round": clients, **work},
        "clients": [{**devices, **data}],
    }
    scenario = scenario_from_keys(keys)
    return replace(scenario, training=replace(scenario.training, codec_up=codec))


def secure() -> None:
    """Bytes and processor seconds of a client and round, plain and masked."""
    from escala.federated.clientapp import client_app, wrapped
    from escala.federated.grid import VirtualGrid
    from escala.federated.learner import TaskLearner
    from escala.federated.rounds import Rounds, Standing
    from escala.federated.securerounds import SecureRounds, bounds_of, secure_client
    from escala.federated.strategy import strategy_of

    print(f"{'':<20}{'kB down':>9}{'kB up':>9}{'CPU ms':>9}", flush=True)
    for name, codec in (("plain", None), ("masked", Codec()), ("masked, rand-k 10 %", RANDOM)):
        scenario = population(Codec(), 0, 10)
        training = replace(scenario.training, least_clients=7)
        if codec is not None:
            training = replace(training, has_secure_aggregation=True, codec_up=codec)
        scenario = replace(scenario, training=training)
        learner = TaskLearner(digits(), scenario)
        fleet = replace(fleet_of(scenario, 0), arrival_ratio=np.ones(10))
        standing = Standing(weights=learner.first(), history=no_history(10))
        strategy = strategy_of(training, 10)
        if codec is None:
            grid = VirtualGrid(client_app(learner), fleet)
            rounds: Rounds | SecureRounds = Rounds(
                grid, strategy, training, fleet, standing, evaluate=learner.score
            )
        else:
            grid = VirtualGrid(wrapped(secure_client(learner, 10)), fleet)
            bounds = bounds_of(learner, 10)
            rounds = SecureRounds(
                grid, strategy, training, fleet, standing, bounds=bounds, evaluate=learner.score
            )
        first = next(rounds.until(1))
        began_s = time.process_time()
        records = list(rounds.until(4))
        cpu_s = time.process_time() - began_s
        sizes = [
            first.metrics.get(f"{way}_total_bytes", getattr(first, f"{way}_bytes")) for way in ("down", "up")
        ]
        print(
            f"{name:<20}{sizes[0] / 1e4:>9.1f}{sizes[1] / 1e4:>9.1f}{cpu_s / len(records) / 10 * 1e3:>9.1f}"
            f"   accuracy {records[-1].metrics['accuracy']:.4f}",
            flush=True,
        )


RANDOM = Codec(kind="rand-k", keep_ratio=0.1, has_feedback=True)

if __name__ == "__main__":
    main()
