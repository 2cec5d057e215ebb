import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.model.estimate import estimate
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.targets import Critical
from escala.model.workload import Workload
from escala.planning.isoefficiency import batch_keeping
from escala.planning.search import Objective
from escala.planning.space import SpaceLimits
from escala.planning.target import ToTarget, batches, best_of, by_batch, to_target

PURE = SpaceLimits(fixed={"tp": (1,), "pp": (1,), "cp": (1,)})


def question(batch: int = 64, tokens: float | None = 64e6 * 4096, devices: int = 8) -> Problem:
    return Problem(
        workload=Workload(
            network=network("llama-3.2-1b"), sequence_tokens=4096, global_batch=batch, total_tokens=tokens
        ),
        cluster=catalog.cluster_for("h100-sxm", devices),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


def critical(batch: float, factor: float = 1.0) -> Critical:
    return Critical(batch=batch, low=batch / factor, high=batch * factor, source="test")


@pytest.fixture(scope="module")
def found() -> list[ToTarget]:
    return by_batch(question(), [64, 128, 256], critical(64.0, 4.0), PURE)


def test_batches_double_up_to_the_high_end():
    assert list(batches(64, 300)) == [64, 128, 256, 300]
    assert list(batches(64, 64)) == [64]


def test_samples_to_the_target_by_hand(found):
    # 64 M samples at batch 64, critical 64: (64 + 256) / (64 + 64) = 2.5 times as many at 256
    assert [each.samples[0] for each in found] == pytest.approx([64e6, 96e6, 160e6], rel=1e-12)
    assert found[2].steps == pytest.approx(160e6 / 256, rel=1e-12)


def test_time_is_steps_times_the_step(found):
    for each in found:
        assert each.duration_s[0] == pytest.approx(each.steps * each.step_s, rel=1e-12)
        assert each.duration_s[1] < each.duration_s[0] < each.duration_s[2]


def test_the_doubt_of_the_critical_batch_widens_only_other_batches(found):
    # at the reference batch the target takes its own samples whatever the critical batch is
    assert found[0].samples[1] == found[0].samples[2] == found[0].samples[0]
    assert found[2].samples[1] < found[2].samples[0] < found[2].samples[2]


def test_the_smallest_batch_near_the_best_is_taken(found):
    best = best_of(found, Objective.TIME)

    assert best is not None
    near = min(each.duration_s[0] for each in found) * 1.05
    assert best.batch == min(each.batch for each in found if each.duration_s[0] <= near)


def test_a_target_needs_a_run():
    with pytest.raises(InvalidInput, match="--tokens"):
        by_batch(question(tokens=None), [64], critical(64.0))


def test_a_batch_keeps_what_was_asked_and_a_smaller_one_does_not():
    problem = question(16, None, 16)

    kept = batch_keeping(problem, 0.9, PURE)

    assert kept.smallest is not None
    assert kept.smallest.efficiency >= 0.9
    assert kept.smallest.batch % 16 == 0
    assert kept.base_devices < 16


def test_what_no_batch_keeps_is_said():
    kept = batch_keeping(question(4, None, 4), 5.0, PURE)

    assert kept.smallest is None
    assert kept.largest.efficiency < 5.0


def test_a_plan_has_its_way_to_what_small_batches_reach():
    # critical 64, batch 64: twice the samples of the smallest batch
    problem = question()
    plans = Plans.of(Plan(dp=8, micro_batches=8))

    found = to_target(problem, estimate(problem, plans), critical(64.0))

    assert found.samples[0] == pytest.approx(2 * 64e6, rel=1e-12)
    assert found.duration_s[0] == pytest.approx(2e6 * float(estimate(problem, plans).step_s[0]), rel=1e-12)


def test_without_any_signal_small_batches_reach_what_no_other_does():
    unknown = Critical(batch=64.0, low=0.0, high=None, source="test")
    problem = question()

    found = to_target(problem, estimate(problem, Plans.of(Plan(dp=8, micro_batches=8))), unknown)

    assert found.samples[1:] == (64e6, float("inf"))
