"""Records and profiles as measured times: what each counts, and what a profile can tell apart."""

from dataclasses import replace

import pytest

from escala.catalog import cluster_for, engine
from escala.catalog.engines import assumptions
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.measurement.calibrate import calibrated
from escala.measurement.calibration_record import Calibrated, NumberFit
from escala.measurement.paired import Paired
from escala.measurement.profile.predicted import COMMUNICATION, COMPUTE, OPTIMIZER, PARTS, WAITING
from escala.measurement.profile.record import (
    PROFILE_SCHEMA,
    Arrival,
    Launches,
    Phases,
    Profile,
    RankProfile,
    Steps,
    Verdict,
    Waits,
)
from escala.measurement.timed import timed
from escala.model.estimate import time_of
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Workload

PROBLEM = Problem(
    workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=4096, global_batch=16),
    cluster=cluster_for("h100-sxm", 16, network="100 Gb/s"),
    engine=engine("pytorch"),
    assumptions=assumptions(),
)
PLAN = Plan(dp=16, zero=3, shard=16, micro_batch=1, micro_batches=1)
TIME = time_of(PROBLEM, Plans.of(PLAN))
PREDICTED_S = {part: sum(float(getattr(TIME, name)[0]) for name in PARTS[part]) for part in PARTS}


def profile(*, waits_s: float | None = None, ranks: int | None = 16, **ratios: float) -> Profile:
    """A profile of the plan on a processor that took so many times what was predicted for each part."""
    took = {part: PREDICTED_S[part] * ratios.get(name, 1.0) for part, name in NAMES.items()}
    phases = Phases(
        data_s=0.2,
        forward_s=took[COMPUTE] / 3,
        backward_s=2 * took[COMPUTE] / 3,
        communication_s=took[COMMUNICATION] + took[WAITING],
        optimizer_s=took[OPTIMIZER],
        idle_s=0.1,
    )
    waits = Waits(compute_s=1.0, memory_s=0.0, launch_s=0.0, communication_s=0.0, input_s=0.0, idle_s=0.0)
    rank = RankProfile(
        rank=0,
        path="trace.json",
        step_s=sum(took.values()) + 0.3,
        phases=phases,
        waits=waits,
        message_s=0.0,
        hidden_s=0.0,
        traffic=(),
        launches=Launches(count=1.0, mean_s=1.0, gap_s=0.0),
        memory=(),
        flop=None,
    )
    arrival = Arrival(rank=0, waits_s=waits_s or 0.0, late_s=0.0, last_times=0.0, is_straggler=False)
    return Profile(
        schema=PROFILE_SCHEMA,
        escala="0",
        device=None,
        has_device=False,
        backend="gloo",
        run_ranks=ranks,
        steps=Steps(how="marked", count=1, each_s=(rank.step_s,)),
        critical_rank=0,
        ranks=(rank,),
        arrivals=() if waits_s is None else (arrival,),
        speed=None,
        verdict=Verdict(kind="mixed", told="", changes=()),
        predicted=None,
        unsaid=(),
        notes=(),
    )


NAMES = {COMPUTE: "compute", COMMUNICATION: "communication", WAITING: "waiting", OPTIMIZER: "optimizer"}


def pair(run: Profile, name: str = "one") -> Paired:
    return Paired(name=name, run=run, problem=PROBLEM, plan=PLAN)


def fitted(*runs: Profile) -> Calibrated:
    pairs = [pair(run, str(i)) for i, run in enumerate(runs)]
    return calibrated(pairs, "2026-11-30", "d", lambda label, share: None)


def strongest(found: Calibrated) -> NumberFit:
    """The number that moved most, in prior standard deviations."""
    return max(found.numbers, key=lambda each: abs(each.moved))


def test_a_profiled_step_is_the_sum_of_what_a_plan_has():
    step, *parts = timed(pair(profile()))

    assert step.seconds == pytest.approx(float(TIME.step_s[0]), rel=1e-12)
    # the optimizer takes less than a hundredth, which is noise
    assert [each.part for each in parts] == [COMPUTE, COMMUNICATION]


def test_parts_count_their_share_and_the_step_no_more():
    step, *parts = timed(pair(profile()))

    assert step.trust == 0.0
    assert sum(each.trust for each in parts) == pytest.approx(1.0, rel=1e-12)
    told_s = float(TIME.step_s[0]) - PREDICTED_S[OPTIMIZER]
    assert parts[0].trust == pytest.approx(PREDICTED_S[COMPUTE] / told_s, rel=1e-12)


def test_waiting_that_ranks_tell_is_a_part_of_its_own():
    untold, told = (timed(pair(profile(waits_s=w))) for w in (None, PREDICTED_S[WAITING]))

    assert {e.part: e.terms for e in untold}[COMMUNICATION] == (*PARTS[COMMUNICATION], *PARTS[WAITING])
    assert {e.part: e.terms for e in told}[COMMUNICATION] == PARTS[COMMUNICATION]


def test_a_profile_as_predicted_moves_nothing():
    assert fitted(profile()).calibration.factor == ()


def test_a_profile_tells_a_slow_link_from_slow_products():
    link, products = strongest(fitted(profile(communication=1.1))), strongest(fitted(profile(compute=1.1)))

    assert (link.of, link.field) == ("link", "bytes_per_s")
    assert (products.of, products.field) == ("engine", "gemm_level")
    assert link.moved < 0.0
    assert products.moved < 0.0


def test_repeats_of_a_profile_share_its_vote():
    found = fitted(profile(compute=1.1), profile(compute=1.1))

    assert found.configurations == 1
    assert sum(each.weight for each in found.runs) == pytest.approx(
        sum(each.weight for each in fitted(profile(compute=1.1)).runs), rel=1e-12
    )


def test_parts_stand_below_their_step():
    found = fitted(profile(compute=1.1))

    assert [each.part for each in found.runs] == ["", COMPUTE, COMMUNICATION]
    assert found.runs[1].error_before == pytest.approx(1 / 1.1 - 1, rel=1e-9)
    assert found.calibration.runs == ("0",)
    assert "without data and idle time" in found.notes[1]


def test_a_profile_of_other_ranks_is_refused():
    with pytest.raises(InvalidInput, match="is of 8 ranks and the plan of 16 devices"):
        timed(pair(profile(ranks=8)))


def test_a_profile_without_work_is_refused():
    nothing = profile(compute=0.0, communication=0.0, waiting=0.0, optimizer=0.0)

    with pytest.raises(InvalidInput, match="shows no time in any part"):
        timed(pair(nothing))


def test_records_and_profiles_of_one_configuration_are_one():
    both = replace(profile(), run_ranks=None)

    assert fitted(both, profile()).configurations == 1
