"""What clients of one program do: first weights, training of a client, a score. Loads torch only for a Task.

Anything with these methods is a learner: that of a Task (torch), or a user's own, of any library.
"""

import inspect
from collections.abc import Mapping
from typing import Protocol

from escala.errors import InvalidInput, one_line
from escala.federated.clientdata import ClientData, client_data
from escala.federated.scenario import Scenario
from escala.federated.task import Task, task_of
from escala.federated.training import Training
from escala.federated.weights import F32, Weights
from escala.measurement.job.fault import user_code
from escala.measurement.job.target import named, names_function


class Update(Protocol):
    """What a client's training gave."""

    @property
    def weights(self) -> Weights:
        """After training."""

    @property
    def samples(self) -> int:
        """How many the client has."""

    @property
    def steps(self) -> int:
        """Batches that were trained on."""

    @property
    def loss(self) -> float:
        """Mean over the samples, of each when it was last trained on."""

    @property
    def rms_loss(self) -> float:
        """Root mean square of the same."""


class Learner(Protocol):
    """First weights, local training and score; the same on server and clients.

    One that also has `data(client)` tells its clients' data in counts, for the gate and the manifest.
    """

    training: Training

    def first(self) -> Weights:
        """The weights before the first round."""

    def samples(self, client: int) -> int:
        """How many samples a client has."""

    def train(
        self, weights: Weights, *, client: int, round_: int, pull: Mapping[str, F32] | None = None
    ) -> Update:
        """Training of one client from the given weights; `pull` is added to every gradient (SCAFFOLD)."""

    def score(self, weights: Weights) -> Mapping[str, float]:
        """How good weights are, by name, for example accuracy and loss."""


class TaskLearner:
    """A task shared out over the clients of a scenario, trained as `local` does."""

    def __init__(self, task: Task, scenario: Scenario) -> None:
        from escala.federated import accuracy, local
        from escala.federated.partition import exact

        self.training = scenario.training
        self._task, self._local, self._accuracy = task, local, accuracy
        self._rows = exact(task, scenario.clients, scenario.training.seed)
        self._module = local.module_of(task, scenario.training)
        self._first = local.weights_of(self._module)

    def first(self) -> Weights:
        """The weights of the seed."""
        return self._first

    def samples(self, client: int) -> int:
        """How many rows of the task a client has."""
        return len(self._rows[client])

    def data(self, client: int) -> ClientData:
        """The client's rows in counts."""
        rows = self._rows[client]
        return client_data(client, self._task.inputs[rows], self._task.labels[rows])

    def train(
        self, weights: Weights, *, client: int, round_: int, pull: Mapping[str, F32] | None = None
    ) -> Update:
        """SGD on the client's rows."""
        rows = self._rows[client]
        return self._local.train(
            self._module, self._task, rows, weights, self.training, client=client, round_=round_, pull=pull
        )

    def score(self, weights: Weights) -> Mapping[str, float]:
        """Accuracy and loss on the test set."""
        found = self._accuracy.score(self._module, self._task, weights)
        return {"accuracy": found.accuracy, "loss": found.loss}


def learner_of(given: str, scenario: Scenario) -> Learner:
    """The learner of a task's name or file, or of a function that returns a task or a learner."""
    if not names_function(given):
        return TaskLearner(task_of(given), scenario)
    function = named(given)
    with user_code(given):
        made = function(scenario) if inspect.signature(function).parameters else function()
    if isinstance(made, Task):
        return TaskLearner(made, scenario)
    missing = [name for name in ("training", "first", "samples", "train", "score") if not hasattr(made, name)]
    if missing:
        raise InvalidInput(
            f"{one_line(given)} returned {type(made).__name__} without {', '.join(missing)}; return a Task or"
            " a Learner"
        )
    learner: Learner = made
    return learner
