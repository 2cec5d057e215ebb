"""What a population learns: module, loss, samples with labels and users, test set. Knows no client.

Loads no torch: `module` and `loss` do when they are called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput, MissingExtra, one_line, unknown
from escala.measurement.job.fault import user_code
from escala.measurement.job.target import imported, names_function
from escala.model.columns import I64

if TYPE_CHECKING:
    import torch
    from torch import nn

DIGITS: Final = "digits"
NETS: Final = ("mlp", "cnn")
TEST_SHARE: Final = 0.2
SPLIT_SEED: Final = 0
"""The test set is the same whatever the seed of a run, so that runs can be compared."""
PIXEL_VALUES: Final = np.float32(16)
INSTALL: Final = "pip install 'escala[federated]'"


def cross_entropy(outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Cross-entropy of each sample. Shapes: outputs (n, classes), labels (n,); result (n,)."""
    from torch.nn import functional

    return functional.cross_entropy(outputs, labels, reduction="none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """Samples that clients share out, how they are learnt, and a test set that no client has.

    `module` makes a fresh module, whose parameters that require a gradient are trained and sent. `loss` gives
    one number for each sample, never their mean. `inputs` and `labels` have a row for each sample.
    """

    name: str
    module: "Callable[[], nn.Module]"
    inputs: NDArray[Any]
    labels: I64
    test_inputs: NDArray[Any]
    test_labels: I64
    users: I64 | None = None
    loss: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]" = cross_entropy

    def __post_init__(self) -> None:
        _refuse_uneven(self)

    def __len__(self) -> int:
        """Samples that clients share out."""
        return len(self.labels)

    @property
    def classes(self) -> int:
        """The largest label, and one."""
        return int(max(self.labels.max(), self.test_labels.max())) + 1


def task_of(given: str, *, net: str | None = None, label: str = "label", user: str | None = None) -> Task:
    """`digits`, a function `package.module:function` that returns a Task, or a table or folder of samples.

    `net` is mlp or cnn where the module is ours; `label` and `user` are columns of a table.
    """
    if net is not None and net not in NETS:
        raise unknown("net", net, NETS, f"choose {' or '.join(NETS)}")
    if given == DIGITS:
        return digits(net or "mlp")
    if names_function(given):
        return _own(given)
    if not Path(given).exists():
        raise InvalidInput(
            f"task '{one_line(given)}' is neither {DIGITS} nor a file or folder here; name a Parquet file, "
            "a folder of images, or package.module:function"
        )
    from escala.federated.tables import task_from

    return task_from(Path(given), net=net, label=label, user=user)


def digits(net: str = "mlp") -> Task:
    """1,797 handwritten digits of 8 x 8 pixels, 10 classes; 359 of them are the test set.

    Source: Alpaydin and Kaynak 1998 (Optical Recognition of Handwritten Digits), as scikit-learn ships it.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise MissingExtra(f"digits come with scikit-learn, which is not installed: {INSTALL}") from None
    pixels, labels = load_digits(return_X_y=True)
    inputs = pixels.astype(np.float32) / PIXEL_VALUES
    shape = (len(inputs), 1, 8, 8) if net == "cnn" else (len(inputs), 64)
    return split(f"{DIGITS} {net}", net, inputs.reshape(shape), labels.astype(np.int64), None)


def split(name: str, net: str, inputs: NDArray[Any], labels: I64, users: I64 | None) -> Task:
    """A task of our own net, with a fifth of each label kept back as the test set."""
    is_test = held_out(labels)
    kept = ~is_test
    classes, shape = int(labels.max()) + 1, inputs.shape[1:]
    return Task(
        name=name,
        module=lambda: _net(net, shape, classes),
        inputs=inputs[kept],
        labels=labels[kept],
        test_inputs=inputs[is_test],
        test_labels=labels[is_test],
        users=None if users is None else users[kept],
    )


def held_out(labels: I64) -> NDArray[np.bool_]:
    """Which samples are for the test: a fifth of each label, at least one where it has two or more."""
    generator = np.random.default_rng(SPLIT_SEED)
    chosen = np.zeros(len(labels), np.bool_)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        chosen[rows[: max(round(TEST_SHARE * len(rows)), int(len(rows) > 1))]] = True
    return chosen


def _net(net: str, shape: tuple[int, ...], classes: int) -> "nn.Module":
    from escala.federated.nets import cnn, mlp

    return cnn(shape, classes) if net == "cnn" else mlp(shape, classes)


def _own(target: str) -> Task:
    function = imported(target)
    with user_code(target):
        made = function()
    if not isinstance(made, Task):
        raise InvalidInput(
            f"{one_line(target)} returned {type(made).__name__}; return an escala.federated.task.Task"
        )
    return made


def _refuse_uneven(task: Task) -> None:
    columns = {"inputs": task.inputs, "labels": task.labels, "users": task.users}
    rows = {name: len(each) for name, each in columns.items() if each is not None}
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{count:,} {name}" for name, count in rows.items())
        raise InvalidInput(f"task {task.name} has {told}; give a row of each for every sample")
    if len(task.test_inputs) != len(task.test_labels) or 0 in (len(task.labels), len(task.test_labels)):
        raise InvalidInput(
            f"task {task.name} has {len(task.labels):,} samples, {len(task.test_inputs):,} test inputs and "
            f"{len(task.test_labels):,} test labels; give some of each, and a label for every test input"
        )
    for labels in (task.labels, task.test_labels):
        if labels.dtype.kind not in "iu" or labels.min() < 0:
            raise InvalidInput(f"labels of task {task.name} are not whole numbers from 0; number the classes")
