from dataclasses import replace

import numpy as np
import pytest

from escala import catalog
from escala.calibration.ranks import APART
from escala.catalog.networks import network
from escala.cli.plan import command
from escala.model.estimate import estimate
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.search import TOLERANCE, Found, Objective, search
from escala.planning.ties import objective, tied_with_first, ties

PROBLEM = Problem(
    workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=4096, global_batch=64),
    cluster=catalog.cluster_for("h100-sxm", 8),
    engine=catalog.engine("pytorch"),
    assumptions=catalog.assumptions(),
)


@pytest.fixture(scope="module")
def found() -> Found:
    return search(PROBLEM, top=40, tolerance=0.0)


def test_values_within_5_percent_of_each_other_are_ties_from_either_side():
    assert list(ties(np.array([1.0, 1.05, 1.0501, 1 / 1.05, 0.95]), 1.0)) == [True, True, False, True, False]


def test_there_is_one_share_of_ties():
    default = next(option.default for option in command.params if option.name == "tolerance")

    assert (default, APART) == (TOLERANCE, 1 + TOLERANCE)


def test_ties_are_the_plans_near_the_first_but_not_the_first(found: Found):
    assert found.ranking is not None
    seconds = found.ranking.step_s

    tied = tied_with_first(found, found.ranking)

    assert list(tied) == [False, *(seconds[1:] <= 1.05 * seconds[0])]
    assert tied.any()
    assert not tied.all()


def test_ties_do_not_depend_on_the_tolerance_of_the_recommendation(found: Found):
    assert found.ranking is not None
    wide = replace(found, tolerance=0.5)

    assert list(tied_with_first(wide, found.ranking)) == list(tied_with_first(found, found.ranking))


def test_by_energy_plans_tie_in_joules(found: Found):
    assert found.ranking is not None
    by_energy = replace(found, objective=Objective.ENERGY)

    assert objective(by_energy, found.ranking) is found.ranking.footprint.energy_j
    assert objective(found, found.ranking) is found.ranking.step_s


def test_a_plan_that_cannot_be_run_ties_with_none(found: Found):
    assert found.ranking is not None
    second = found.ranking.plans[1]
    odd = estimate(PROBLEM, Plans.of(replace(second, dp=7)))

    assert tied_with_first(found, estimate(PROBLEM, Plans.of(second)))[0]
    assert not tied_with_first(found, odd)[0]


def test_where_nothing_fits_nothing_is_tied(found: Found):
    assert found.ranking is not None

    assert not tied_with_first(replace(found, ranking=None), found.ranking).any()
