"""Samples of somebody's own data set: anything with a length and items by number. Knows no torch.

An item is a pair (inputs, target), taken as it stands: tokens with the next token of each, or an image with
its label. Or it is a mapping as Hugging Face's models take it: `input_ids`, perhaps with `labels` and
`attention_mask`, whose labels stand beside their own token and are moved by one here; or `pixel_values`
with `label` or `labels`. Items have one shape: pad or pack before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput, spoken
from escala.training.data.order import Order
from escala.training.data.samples import IGNORED, Samples

KNOWN: Final = "a pair (inputs, target), or keys input_ids or pixel_values with labels"


class Dataset(Protocol):
    """A map-style data set, such as torch.utils.data.Dataset with a length or datasets.Dataset."""

    def __len__(self) -> int:
        """Items."""
        ...

    def __getitem__(self, item: int, /) -> Any:
        """An item by its number."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wrapped:
    """Items of a data set in the order of a seed (None: as they stand)."""

    dataset: Dataset
    seed: int | None

    def __len__(self) -> int:
        """Items of an epoch."""
        return len(self.dataset)

    def batch(self, first: int, count: int) -> Samples:
        """Samples first to first + count of the run."""
        _, items = Order(items=len(self), seed=self.seed).at(first, count)
        pairs = [_pair(self.dataset[item], item) for item in items.tolist()]
        inputs = _stacked([each for each, _ in pairs], items.tolist(), "inputs")
        targets = _stacked([each for _, each in pairs], items.tolist(), "target")
        kind = np.float32 if inputs.ndim == 4 else np.int64
        return Samples(inputs=inputs.astype(kind), targets=targets.astype(np.int64))


def _pair(given: Any, item: int) -> tuple[NDArray[Any], NDArray[Any]]:
    if isinstance(given, tuple | list) and len(given) == 2:
        return np.asarray(given[0]), np.asarray(given[1])
    if isinstance(given, Mapping) and "input_ids" in given:
        return _language(given)
    if isinstance(given, Mapping) and "pixel_values" in given and ("labels" in given or "label" in given):
        return np.asarray(given["pixel_values"]), np.asarray(
            given["labels" if "labels" in given else "label"]
        )
    found = f"has keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else f"is {spoken(given)}"
    raise InvalidInput(f"item {item} of the data set {found}; give {KNOWN}")


def _language(given: Mapping[str, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Tokens, and labels moved to the token before theirs; where the mask is 0, none."""
    tokens = np.asarray(given["input_ids"])
    labels = np.array(given.get("labels", tokens), np.int64)
    if "attention_mask" in given:
        labels[np.asarray(given["attention_mask"]) == 0] = IGNORED
    return tokens, np.append(labels[1:], IGNORED)


def _stacked(arrays: Sequence[NDArray[Any]], items: Sequence[int], what: str) -> NDArray[Any]:
    other = next((place for place, each in enumerate(arrays) if each.shape != arrays[0].shape), None)
    if other is not None:
        raise InvalidInput(
            f"{what} of item {items[other]} has the shape {arrays[other].shape}, that of item {items[0]} "
            f"{arrays[0].shape}; pad or pack the data set to one"
        )
    return np.stack(arrays)
