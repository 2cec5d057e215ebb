"""Samples as tensors: the only module of the data that needs torch."""

from typing import Any

import torch
from numpy.typing import NDArray

from escala.parallel.batch import Batch
from escala.training.data.samples import Samples


def batch_of(samples: Samples) -> Batch:
    """The same samples as tensors of the processor, in page-locked memory where there is a GPU to copy to."""
    documents, positions = samples.documents, samples.positions
    return Batch(
        inputs=_tensor(samples.inputs),
        targets=_tensor(samples.targets),
        documents=None if documents is None else _tensor(documents),
        positions=None if positions is None else _tensor(positions),
    )


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.pin_memory() if torch.cuda.is_available() else tensor
