"""Plans that no other shown plan beats in time, memory and simplicity at once. Compares, predicts nothing."""

from dataclasses import replace
from typing import Final

from escala.model.estimate import estimate
from escala.planning.search import Found
from escala.report.view import Asked

CANDIDATES: Final = 60
"""Plans to rank before the front is taken; a front seldom has more than twenty."""


def on_front(asked: Asked, most: int) -> Asked:
    """The same answer with the ranking cut to its front; the recommended plan always stays."""
    found = asked.found
    if found.ranking is None or found.recommended is None:
        return asked
    return replace(asked, found=_cut(asked, found, found.recommended, most))


def _cut(asked: Asked, found: Found, chosen: int, most: int) -> Found:
    ranking = found.ranking
    assert ranking is not None
    needs = zip(ranking.step_s, ranking.memory.needed_bytes, found.complexity, strict=True)
    points = [(float(step_s), float(need), int(points)) for step_s, need, points in needs]
    rows = [row for row in range(len(points)) if row == chosen or not _is_beaten(points, row)]
    kept = rows[:most] if chosen in rows[:most] else [*rows[: most - 1], chosen]
    return replace(
        found,
        ranking=estimate(asked.problem, ranking.plans.take(kept)),
        recommended=kept.index(chosen),
        complexity=found.complexity[kept],
    )


def _is_beaten(points: list[tuple[float, float, int]], row: int) -> bool:
    """Another point is nowhere worse and somewhere better, or equal and earlier."""
    own = points[row]
    for place, other in enumerate(points):
        is_no_worse = all(a <= b for a, b in zip(other, own, strict=True))
        if place != row and is_no_worse and (other != own or place < row):
            return True
    return False
