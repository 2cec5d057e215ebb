"""A learner of tensors of any shapes, whose clients sleep for each sample as long as `sample_s` says.

Where the environment names a file, it writes down when clients train and when the server scores.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from escala.federated.order import generator
from federated.softmax import Update

STAMPS = "ESCALA_TEST_STAMPS"


class Paced:
    """Adds noise to its weights, after a while."""

    def __init__(self, scenario: Any) -> None:
        self.training, self._shapes = scenario.training, scenario.learnt.shapes
        self._classes = [each for each in scenario.clients for _ in range(each.clients)]

    def first(self) -> dict[str, Any]:
        """Zeros."""
        return {f"w{at}": np.zeros(shape, np.float32) for at, shape in enumerate(self._shapes)}

    def samples(self, client: int) -> int:
        """Those of its class."""
        return int(self._classes[client].data.samples)

    def train(
        self, weights: Mapping[str, Any], *, client: int, round_: int, pull: Mapping[str, Any] | None = None
    ) -> Update:
        """Sleep for all samples, then add noise."""
        begun_s, samples = time.monotonic(), self.samples(client)
        sample_s = self._classes[client].device.targets[0].sample_s.mid
        draws = generator(self.training.seed, client, round_)
        moved = {
            name: each + draws.standard_normal(each.shape, dtype=np.float32) for name, each in weights.items()
        }
        until_s = begun_s + samples * self.training.local_epochs * sample_s
        time.sleep(max(until_s - time.monotonic(), 0.0))
        stamp(what="train", client=client, begun_s=begun_s, ended_s=time.monotonic())
        return Update(weights=moved, samples=samples, steps=1, loss=1.0, rms_loss=1.0)

    def score(self, weights: Mapping[str, Any]) -> dict[str, float]:
        """Nothing that matters."""
        stamp(what="score", client=-1, begun_s=time.monotonic(), ended_s=time.monotonic())
        return {"mean": float(weights["w0"].mean())}


def stamp(**told: Any) -> None:
    """A line in the file that is named; lines of several processes do not mix, they are short."""
    if STAMPS in os.environ:
        with Path(os.environ[STAMPS]).open("a") as file:
            file.write(json.dumps(told) + "\n")


def learner(scenario: Any) -> Paced:
    """What a run names."""
    return Paced(scenario)
