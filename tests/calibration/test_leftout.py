"""Scores with the source of each row left out: by hand arithmetic on a few rows."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from escala.calibration.leftout import (
    Residual,
    changed_rows,
    coverages,
    left_out_sample,
    mean_coverage,
    new_engine_ratio,
    pair,
    pairs_by,
    residuals,
    source_mean,
    unseen_inside,
)
from escala.calibration.reading import Reading
from escala.calibration.samples import errors_of, mape_together
from escala.calibration.scores import time_sample
from escala.calibration.scoring import Prediction
from escala.model.interval import Regime

Make = Callable[..., Prediction]


def residual(inside: float, left_out: float) -> Residual:
    """Residuals of a prediction that is so many times the published time."""
    return Residual(inside=math.log(inside), left_out=math.log(left_out))


def test_every_residual_has_two_finite_errors():
    known = residuals()

    assert len(known) > 1000
    assert all(math.isfinite(each.inside) and math.isfinite(each.left_out) for each in known.values())


def test_left_out_prediction_is_published_times_the_ratio_of_its_residual(predicted: Make):
    sample = left_out_sample(predicted(10.0, 11.0, id="a"), residual(1.1, 1.25))

    assert sample.predicted == pytest.approx(12.5, rel=1e-12)
    assert sample.error == pytest.approx(0.25, rel=1e-12)


def test_left_out_interval_is_that_of_an_engine_that_no_run_calibrated(reading: Reading):
    known = replace(reading, imputed=())
    wanted = getattr(known.problem.assumptions, f"interval_{known.regime.name.lower()}_ratio")

    assert known.problem.engine.is_calibrated
    assert new_engine_ratio(known) == pytest.approx(wanted, rel=1e-12)


def test_left_out_interval_is_wider_where_a_field_is_assumed(reading: Reading):
    narrow = new_engine_ratio(replace(reading, imputed=()))
    wide = new_engine_ratio(replace(reading, imputed=("batch",)))

    assert math.log(wide) ** 2 == pytest.approx(math.log(narrow) ** 2 + math.log(1.3) ** 2, rel=1e-9)


def test_a_pair_scores_the_same_rows_twice(predicted: Make):
    rows = [predicted(10.0, 11.0, id="a"), predicted(10.0, 9.0, id="b")]
    both = pair("two", rows, {"a": residual(1.1, 1.3), "b": residual(0.9, 0.8)})

    assert both is not None
    assert both.inside.mape == pytest.approx((0.1 + 0.1) / 2, rel=1e-12)
    assert both.left_out.mape == pytest.approx((0.3 + 0.2) / 2, rel=1e-12)
    assert both.left_out.worst.id == "a"


def test_rows_that_the_fit_has_not_seen_are_in_neither_score(predicted: Make):
    rows = [predicted(10.0, 11.0, id="a"), predicted(10.0, 30.0, id="new"), predicted(None, 1.0, id="c")]
    low = predicted(10.0, 99.0, id="low", trust="low")
    both = pair("", [*rows, low], {each: residual(1.1, 1.2) for each in ("a", "c", "low")})

    assert both is not None
    assert both.inside.rows == both.left_out.rows == 1
    assert pair("", rows, {}) is None


def groups_of_two(predicted: Make) -> list[Prediction]:
    """Three rows of one source and one of another."""
    first = [predicted(10.0, 11.0, id=name, group="one") for name in "abc"]
    return [*first, predicted(10.0, 12.0, id="d", group="two")]


KNOWN = {**{each: residual(1.1, 1.1) for each in "abc"}, "d": residual(1.2, 1.5)}


def by_group(reading: Reading) -> str:
    return reading.group


def test_a_source_is_one_vote_however_many_rows_it_has(predicted: Make):
    pairs = pairs_by(by_group, groups_of_two(predicted), KNOWN)
    inside, left_out = source_mean(pairs, lambda errors: errors.mape)

    assert [each.name for each in pairs] == ["one", "two"]
    assert inside == pytest.approx((0.1 + 0.2) / 2, rel=1e-12)
    assert left_out == pytest.approx((0.1 + 0.5) / 2, rel=1e-12)


def test_unseen_width_is_set_by_the_other_sources_alone(predicted: Make):
    rows = [replace(each, reading=replace(each.reading, imputed=())) for each in groups_of_two(predicted)]
    inside = unseen_inside(rows, KNOWN)

    # source one is off by 1.1, and its width is 1.5, set by source two; that is off by 1.5 in a width of 1.1
    assert inside.tolist() == [True, True, True, False]


def test_a_regime_with_few_rows_elsewhere_takes_its_width_from_all_other_rows(predicted: Make):
    rows = [predicted(10.0, 11.0, id=f"a{i}", group="one", regime=Regime.SMALL) for i in range(30)]
    rows += [predicted(10.0, 20.0, id=f"b{i}", group="two", regime=Regime.LONG) for i in range(30)]
    rows += [predicted(10.0, 13.0, id="c", group="three", regime=Regime.SMALL)]
    rows = [replace(each, reading=replace(each.reading, imputed=())) for each in rows]
    ratios = {"a": 1.1, "b": 2.0, "c": 1.3}
    known = {each.reading.row.id: residual(1.0, ratios[each.reading.row.id[0]]) for each in rows}
    inside = unseen_inside(rows, known)

    # c: 30 rows of its regime elsewhere, off by 1.1; b: none, so the widest fifth of all others, 1.1
    assert not inside[-1]
    assert not inside[30:60].any()


def test_coverage_counts_rows_of_each_name(predicted: Make):
    found = {each.name: each for each in coverages(by_group, groups_of_two(predicted), KNOWN)}

    assert found["one"].rows == 3
    assert found["one"].unseen == 1.0
    assert found["two"].unseen == 0.0
    assert mean_coverage(groups_of_two(predicted), KNOWN).unseen == (1.0 + 0.0) / 2


def test_a_prediction_that_moved_by_more_than_a_percent_is_counted(predicted: Make):
    rows = [predicted(10.0, 11.0, id="same"), predicted(10.0, 11.2, id="moved")]

    assert changed_rows(rows, {each: residual(1.1, 1.1) for each in ("same", "moved")}) == 1


def test_two_sets_together_have_the_mean_of_all_their_rows(predicted: Make):
    def errors(*ratios: float) -> Any:
        return errors_of([s for s in (time_sample(predicted(1.0, ratio)) for ratio in ratios) if s])

    assert mape_together(errors(1.1, 1.1), errors(1.4)) == pytest.approx((0.1 + 0.1 + 0.4) / 3, rel=1e-12)
