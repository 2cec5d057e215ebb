import numpy as np
import pytest

from escala.training.data.samples import IGNORED, Samples
from escala.training.data.synthetic import SyntheticImages


@pytest.mark.optional
def test_tensors_are_the_arrays():
    from escala.training.data.tensors import batch_of

    numbers = np.arange(6, dtype=np.int64).reshape(2, 3)
    batch = batch_of(
        Samples(inputs=numbers, targets=numbers + 1, documents=numbers.astype(np.int32), positions=numbers)
    )

    assert batch.inputs.tolist() == numbers.tolist()
    assert batch.targets.tolist() == (numbers + 1).tolist()
    assert str(batch.documents.dtype) == "torch.int32"
    assert batch.positions.tolist() == numbers.tolist()


@pytest.mark.optional
def test_images_have_neither_documents_nor_positions():
    from escala.training.data.tensors import batch_of

    batch = batch_of(SyntheticImages(pixels=4, classes=3).batch(0, 2))

    assert (batch.documents, batch.positions) == (None, None)
    assert str(batch.inputs.dtype) == "torch.float32"


@pytest.mark.optional
def test_the_ignored_target_is_the_one_that_the_loss_passes_over():
    from escala.parallel import batch

    assert batch.IGNORED == IGNORED


@pytest.mark.optional
def test_a_data_set_of_torch_can_be_wrapped():
    import torch
    from torch.utils.data import TensorDataset

    from escala.training.data.wrapped import Wrapped

    dataset = TensorDataset(torch.arange(8).reshape(4, 2), torch.arange(8).reshape(4, 2) + 1)

    found = Wrapped(dataset=dataset, seed=None).batch(1, 2)

    assert found.inputs.tolist() == [[2, 3], [4, 5]]
    assert found.targets.tolist() == [[3, 4], [5, 6]]
