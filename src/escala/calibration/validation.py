"""A table of published measurements read, predicted and scored. No statistics here."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from escala.calibration.reading import Reading, Skip, read
from escala.calibration.remedies import told
from escala.calibration.rows import Fault, Rows
from escala.calibration.scores import Scores, score
from escala.calibration.scoring import Prediction, predict


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A table with the prediction of each row that can be read, the rows that cannot, and the scores.

    `named_skips` are the rows that cannot by line, with what to write; empty where the table is of no file.
    """

    table: Rows
    predictions: tuple[Prediction, ...]
    skips: tuple[Skip, ...]
    named_skips: tuple[Fault, ...]
    scores: Scores

    @property
    def reasons(self) -> dict[str, int]:
        """How many rows are skipped for each reason, the most frequent first."""
        count = Counter(each.reason for each in self.skips)
        return dict(sorted(count.items(), key=lambda pair: (-pair[1], pair[0])))


def validate(table: Rows) -> Validation:
    """Every row of a table read, predicted and scored."""
    results = [read(row) for row in table.rows]
    predictions = predict([each for each in results if isinstance(each, Reading)])
    return Validation(
        table=table,
        predictions=predictions,
        skips=tuple(each for each in results if isinstance(each, Skip)),
        named_skips=tuple(_named(table.lines, results)),
        scores=score(predictions),
    )


def _named(lines: Sequence[int], results: Sequence[Reading | Skip]) -> Iterator[Fault]:
    for line, each in zip(lines, results, strict=False):
        if isinstance(each, Skip):
            yield Fault(line=line, id=each.row.id, reason=told(each))
