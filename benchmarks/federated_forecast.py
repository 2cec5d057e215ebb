"""How good forecasts of rounds are: pilots of known curves, targets that the rest of each curve reaches.

    python benchmarks/federated_forecast.py synthetic [--curves 100]
    python benchmarks/federated_forecast.py digits [--curves 24]      (needs scikit-learn)
    python benchmarks/federated_forecast.py RUN.jsonl ...             (rounds of simulations or runs)

Prints how often the 80 % interval holds the truth, and the error of the middle, by length of the pilot.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from escala.errors import InvalidInput
from escala.federated.forecast import Pilot, forecast, pilot_of
from escala.federated.roundfile import read_rounds

PILOTS = (10, 20, 40)
AHEAD = (0.3, 0.6, 0.9)
"""Targets: the best of the pilot + so much of the way to the best of the whole curve."""
SMALLEST_WAY = 0.01
ROUNDS = 300


@dataclass(frozen=True)
class Judged:
    """More rounds that it took, and the forecast; infinite where it said never."""

    pilot: int
    truth: float
    low: float
    middle: float
    high: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="synthetic|digits|FILE")
    parser.add_argument("--curves", type=int, default=24)
    parser.add_argument("--first", type=int, default=1000, help="Seed of the first curve.")
    asked = parser.parse_args()
    makers = {"synthetic": synthetic, "digits": fedavg}
    seeds = range(asked.first, asked.first + asked.curves)
    if asked.what[0] in makers:
        curves = [makers[asked.what[0]](seed) for seed in seeds]
    else:
        curves = [pilot_of(read_rounds(file), "accuracy").values for file in asked.what]
    judged = [each for curve in curves for each in judge(curve)]
    print(f"{len(curves)} curves, {len(judged)} forecasts")
    print(
        f"{'pilot':>6}{'forecasts':>10}{'inside':>8}{'earlier':>8}{'later':>7}{'error':>8}{'open':>7}{'never':>7}"
    )
    for pilot in (*PILOTS, None):
        tell("all" if pilot is None else str(pilot), [each for each in judged if pilot in (None, each.pilot)])


def judge(curve: np.ndarray) -> Iterator[Judged]:
    """Forecasts from pilots of several lengths to several targets that the curve reaches later."""
    for length in PILOTS:
        best, top = curve[:length].max(), curve.max()
        if top - best < SMALLEST_WAY or 2 * length > len(curve):
            continue
        pilot = Pilot(metric="accuracy", rounds=np.arange(1.0, length + 1), values=curve[:length])
        for share in AHEAD:
            target = float(best + share * (top - best))
            try:
                found = forecast(pilot, target)
            except InvalidInput:  # the pilot has not left its beginning
                continue
            ends = (found.more_low_rounds, found.more_mid_rounds, found.more_high_rounds)
            low, middle, high = (np.inf if each is None else each for each in ends)
            truth = float(np.flatnonzero(curve >= target)[0] + 1 - length)
            yield Judged(length, truth, low, middle, high)


def tell(name: str, judged: list[Judged]) -> None:
    """One line: coverage, truth before and behind the interval, error of the middle, open and never."""
    if not judged:
        return
    inside = np.mean([each.low <= each.truth <= each.high for each in judged])
    earlier = np.mean([each.truth < each.low for each in judged])
    later = np.mean([each.truth > each.high for each in judged])
    errors = [abs(np.log(each.middle / each.truth)) for each in judged if each.middle > 0]
    factor = np.exp(np.median(errors))
    is_open = np.mean([np.isinf(each.high) for each in judged])
    never = np.mean([np.isinf(each.middle) for each in judged])
    shares = f"{inside:>7.0%}{earlier:>8.0%}{later:>8.0%}{f'x{factor:.2f}':>8}{is_open:>7.0%}{never:>7.0%}"
    print(f"{name:>6}{len(judged):>10}{shares}")


def synthetic(seed: int) -> np.ndarray:
    """A power law, an exponential, two exponentials or a sigmoid in log time, with noise that may last."""
    draws = np.random.default_rng(seed)
    rounds = np.arange(1.0, 401.0)
    level, start = draws.uniform(0.75, 0.99), draws.uniform(0.05, 0.3)
    fast, slow, share = draws.uniform(3, 20), draws.uniform(60, 300), draws.uniform(0.3, 0.8)
    left = (
        (1 + rounds / draws.uniform(2, 30)) ** -draws.uniform(0.4, 1.5),
        np.exp(-rounds / draws.uniform(10, 120)),
        share * np.exp(-rounds / fast) + (1 - share) * np.exp(-rounds / slow),
        1 - 1 / (1 + (rounds / draws.uniform(10, 80)) ** -draws.uniform(1, 2.5)),
    )[draws.integers(4)]
    deviation, lasting = draws.choice([0.002, 0.005, 0.015, 0.03]), draws.choice([0.0, 0.5])
    noise, last = np.empty(len(rounds)), 0.0
    for place, fresh in enumerate(draws.standard_normal(len(rounds))):
        last = lasting * last + np.sqrt(1 - lasting**2) * fresh
        noise[place] = deviation * last
    return np.clip(level - (level - start) * left + noise, 0.0, 1.0)


def fedavg(seed: int) -> np.ndarray:
    """Accuracy by round of FedAvg on digits: network, clients, cohort, epochs, rate and skew by the seed."""
    from sklearn.datasets import load_digits

    draws = np.random.default_rng(seed)
    inputs, labels = load_digits(return_X_y=True)
    order = draws.permutation(len(labels))
    inputs, labels = (inputs[order] / 16).astype(np.float32), labels[order]
    rows = _dealt(labels[360:], int(draws.choice([20, 40, 80])), draws) + 360
    cohort, epochs = int(draws.choice([3, 5, 10, 20])), int(draws.choice([1, 1, 2, 5]))
    hidden, rate = int(draws.choice([32, 128])), float(np.exp(draws.uniform(np.log(0.01), np.log(0.3))))
    weights = [draws.uniform(-1, 1, shape) / np.sqrt(shape[0]) for shape in ((65, hidden), (hidden, 10))]
    weights = [each.astype(np.float32) for each in weights]
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1), np.float32)], axis=1)
    curve = []
    for _ in range(ROUNDS):
        chosen = draws.choice(len(rows), min(cohort, len(rows)), replace=False)
        weights = _averaged(weights, rows[chosen], inputs, labels, epochs, rate, draws)
        scores = np.maximum(inputs[:360] @ weights[0], 0) @ weights[1]
        curve.append((scores.argmax(axis=1) == labels[:360]).mean())
    return np.array(curve)


def _dealt(labels: np.ndarray, clients: int, draws: np.random.Generator) -> np.ndarray:
    """Rows of each client, as many each; half of the runs are sorted by label in part."""
    disorder = draws.choice([1000.0, 1000.0, 2.0, 0.5])
    keys = labels + draws.normal(0, disorder, len(labels))
    each = len(labels) // clients
    return np.argsort(keys)[: each * clients].reshape(clients, each)


def _averaged(weights, rows, inputs, labels, epochs, rate, draws, batch=16):
    """One round: every chosen client trains from the same weights; their mean."""
    own = [np.repeat(each[None], len(rows), axis=0) for each in weights]
    for _ in range(epochs * -(-rows.shape[1] // batch)):
        picked = rows[np.arange(len(rows))[:, None], draws.integers(rows.shape[1], size=(len(rows), batch))]
        samples = inputs[picked]
        hidden = np.maximum(samples @ own[0], 0)
        scores = np.exp(hidden @ own[1])
        wrong = (scores / scores.sum(axis=2, keepdims=True) - np.eye(10)[labels[picked]]).astype(np.float32)
        back = (wrong @ own[1].transpose(0, 2, 1)) * (hidden > 0)
        own[1] -= rate / batch * (hidden.transpose(0, 2, 1) @ wrong)
        own[0] -= rate / batch * (samples.transpose(0, 2, 1) @ back)
    return [each.mean(axis=0) for each in own]


if __name__ == "__main__":
    main()
