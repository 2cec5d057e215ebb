"""How far the model is off on single operations: errors by operation, size and link. Knows no row as printed.

Errors are predicted / published - 1, parts of one: 0.05 is 5 %.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.calibration.collective_rows import SizeClass, read_collective
from escala.calibration.operations import Operation, OperationSkip, Reader, read_each, shipped
from escala.calibration.power_rows import read_power, read_power_limit
from escala.calibration.product_rows import read_product
from escala.calibration.samples import WorstRow, mean_size, median_size

READERS: Final[dict[str, Reader]] = {
    "collectives": read_collective,
    "gemm": read_product,
    "power": read_power,
    "power_limits": read_power_limit,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationErrors:
    """Errors of some measurements: mean and median size, median with sign, the worst."""

    rows: int
    mape: float
    median_absolute_error: float
    bias: float
    worst: WorstRow


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationGroup:
    """The errors of the measurements that have one name."""

    name: str
    errors: OperationErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationScores:
    """Errors of single operations; None where there are none.

    `by_operation` holds all, `by_size` and `by_link` (each link split by size) are of `collectives`;
    `unfitted` are `products` of matrices with the shares from before the fit.
    """

    collectives: OperationErrors | None
    by_operation: tuple[OperationGroup, ...]
    by_size: tuple[OperationGroup, ...]
    by_link: tuple[OperationGroup, ...]
    products: OperationErrors | None
    unfitted: OperationErrors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Measurements of single operations: those that are scored, those that are not, and the scores."""

    operations: tuple[Operation, ...]
    skips: tuple[OperationSkip, ...]
    scores: OperationScores

    @property
    def reasons(self) -> dict[str, int]:
        """How many rows are skipped for each reason, the most frequent first."""
        found = Counter(each.reason for each in self.skips)
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def validate_operations() -> Operations:
    """Every row of the shipped tables read, predicted and scored."""
    results = [each for name, reader in READERS.items() for each in read_each(name, shipped(name), reader)]
    operations = tuple(each for each in results if isinstance(each, Operation))
    skips = tuple(each for each in results if isinstance(each, OperationSkip))
    return Operations(operations=operations, skips=skips, scores=score_operations(operations))


def score_operations(given: Sequence[Operation]) -> OperationScores:
    """All statistics of measurements, in any order."""
    collectives = [each for each in given if each.size]
    products = [each for each in given if each.unfitted is not None]
    return OperationScores(
        collectives=_errors(_pairs(collectives)),
        by_operation=_groups(given, lambda each: each.operation),
        by_size=tuple(sorted(_groups(collectives, lambda each: each.size), key=_by_size)),
        by_link=_groups(collectives, lambda each: f"{each.of}, {each.size}"),
        products=_errors(_pairs(products)),
        unfitted=_errors([(each.id, (each.unfitted or 0.0) / each.published - 1.0) for each in products]),
    )


def _by_size(given: OperationGroup) -> int:
    return [str(each) for each in SizeClass].index(given.name)


Pairs = Sequence[tuple[str, float]]


def _pairs(given: Iterable[Operation]) -> Pairs:
    return [(each.id, each.error) for each in given]


def _errors(pairs: Pairs) -> OperationErrors | None:
    if not pairs:
        return None
    errors = np.sort([error for _, error in pairs])  # so that sums are the same in any order of rows
    worst = max(pairs, key=lambda pair: (abs(pair[1]), pair[1], pair[0]))
    return OperationErrors(
        rows=len(pairs),
        mape=mean_size(errors),
        median_absolute_error=median_size(errors),
        bias=float(np.median(errors)),
        worst=WorstRow(id=worst[0], error=worst[1]),
    )


def _groups(given: Iterable[Operation], named: Callable[[Operation], str]) -> tuple[OperationGroup, ...]:
    """The errors of measurements by name, the name with most of them first."""
    alike: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in given:
        alike[named(each)].append(each)
    found = ((name, _errors(_pairs(operations))) for name, operations in alike.items())
    groups = [OperationGroup(name=name, errors=errors) for name, errors in found if errors is not None]
    return tuple(sorted(groups, key=lambda each: (-each.errors.rows, each.name)))
