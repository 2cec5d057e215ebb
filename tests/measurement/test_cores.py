"""Ranks that compute on cores have their own ones; who is bound already stays so."""

import os
import subprocess
import sys

import pytest

from escala.measurement.cores import own_cores, share

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process")


@pytest.mark.parametrize(
    ("cores", "ranks", "shares"),
    [
        (range(4), 2, [{0, 1}, {2, 3}]),
        (range(5), 2, [{0, 1}, {2, 3}]),  # the fifth is nobody's
        ((7, 3), 2, [{3}, {7}]),
        (range(2), 3, [{0, 1}] * 3),  # fewer cores than ranks: all have all
    ],
)
def test_shares_are_neighbours_and_never_overlap(cores: range, ranks: int, shares: list[set[int]]) -> None:
    assert [set(share(cores, rank, ranks)) for rank in range(ranks)] == shares


def test_a_rank_is_on_its_share_for_as_long_as_it_lasts() -> None:
    everywhere = os.sched_getaffinity(0)

    with own_cores({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": str(len(everywhere))}):
        inside = os.sched_getaffinity(0)

    assert inside in ({sorted(everywhere)[min(1, len(everywhere) - 1)]}, everywhere)  # a quota binds nobody
    assert os.sched_getaffinity(0) == everywhere


def test_who_was_bound_apart_from_the_parent_stays_where_it_is() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from escala.measurement.cores import is_free, own_cores\n"
        "before = os.sched_getaffinity(0)\n"
        "with own_cores({'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '2'}):\n"
        "    print(is_free(), os.sched_getaffinity(0) == before)\n"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["False", "True"]


def test_a_process_that_nobody_started_as_a_rank_keeps_all_cores() -> None:
    everywhere = os.sched_getaffinity(0)

    with own_cores({}):
        assert os.sched_getaffinity(0) == everywhere
