"""Replicas that train alone and agree at times, against what that has to be equal to."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from escala.errors import InvalidInput  # noqa: E402
from escala.model.plan import Plan  # noqa: E402
from escala.parallel.local_steps import Fragment, LocalSteps, planned  # noqa: E402
from escala.parallel.outer import Outer  # noqa: E402

pytestmark = [pytest.mark.optional, pytest.mark.slow]
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    paths = os.pathsep.join((str(TESTS.parent / "src"), str(TESTS)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    job = subprocess.run(
        [*command, "-m", "parallel.local_job", str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("plan", ["ddp", "hsdp"])
def test_replicas_that_agree_on_their_mean_have_the_mean_of_what_each_learns_alone(found, plan):
    assert found[plan]["weights"] < 5e-6


@pytest.mark.parametrize("plan", ["ddp", "hsdp"])
def test_replicas_go_on_each_with_its_own_optimizer(found, plan):
    seen = found[f"{plan} resumed"]

    # 0 where nothing was rounded otherwise: the same numbers, in the same order
    assert seen["apart"] == 0.0
    assert seen["is_own"]
    assert len(set(seen["moments"])) == 4, "the replicas' optimizers had not gone apart"
    assert not any("optimizer" in note for note in seen["notes"])


def test_on_another_layout_it_is_said_that_all_go_on_with_the_first_replicas_optimizer(found):
    assert any("the first one's state goes on in all" in note for note in found["on another layout"])


def test_bytes_are_sent_in_the_last_of_the_local_steps_alone(found):
    # four replicas, all-reduce of fp32: 2 * 3/4 * 4 bytes a weight; two replicas of halves: 4 / 2
    assert found["ddp"]["sent"] == [0, 0, 0, 6 * found["ddp"]["numbers"]]
    assert found["hsdp"]["sent"] == [0, 0, 0, pytest.approx(2 * found["hsdp"]["numbers"], rel=0.01)]


def test_a_mean_is_as_exact_as_its_format(found):
    # bf16 keeps 8 bits of each number, and of sums of four; int8 is half a step of most / 127 off at most
    assert found["FP32"]["error"] < 1e-6
    assert found["BF16"]["error"] < 4 * found["BF16"]["most"] / 2**8
    assert found["INT8"]["error"] <= found["INT8"]["most"] / 127 / 2 + 1e-6


def test_formats_send_fewer_bytes(found):
    # 5,000 numbers among 4 ranks; int8 in 5 blocks of 1,024 with a scale each
    assert found["FP32"]["sent"] == 2 * 3 * 5000 * 4 // 4
    assert found["BF16"]["sent"] == 2 * 3 * 5000 * 2 // 4
    assert found["INT8"]["sent"] == 3 * (5 * 1024 + 5 * 4)


def test_the_outer_update_is_nesterov_by_hand():
    # difference 2, then 1; rate 0.5, momentum 0.9:
    # v = 2, w = 10 - 0.5 (2 + 0.9 * 2) = 8.1; v = 2.8, w = 8.1 - 0.5 (1 + 0.9 * 2.8) = 6.34
    steps = LocalSteps.__new__(LocalSteps)
    steps.outer = Outer(learning_rate=0.5, momentum=0.9)
    agreed, momentum = torch.tensor([10.0]), torch.tensor([0.0])

    for difference in (2.0, 1.0):
        steps._update(agreed, momentum, torch.tensor([difference]))

    assert agreed.item() == pytest.approx(6.34)


def test_fragments_meet_in_turn_each_once_in_the_local_steps():
    steps = LocalSteps.__new__(LocalSteps)
    steps.steps, steps.fragments = 6, [Fragment(weights=[]) for _ in range(3)]

    due = [[place for place in range(3) if steps._is_due(place, done)] for done in range(1, 13)]

    assert due == [[], [0], [], [1], [], [2], [], [0], [], [1], [], [2]]


def test_fragments_of_the_plan_are_run_and_what_is_only_planned_is_refused():
    plan = Plan(dp=2, local_steps=8, local_fragments=4)

    assert planned(plan, Outer()).fragments == 4
    with pytest.raises(InvalidInput, match="planned but not run"):
        planned(replace(plan, local_overlap_steps=2), Outer())
    with pytest.raises(InvalidInput, match="the plan has 4 fragments, not 2"):
        planned(plan, Outer(fragments=2))


def test_replicas_that_have_settled_do_not_meet_again_in_the_same_step():
    steps = LocalSteps.__new__(LocalSteps)
    steps.steps, steps.fragments, steps.settled = 4, [Fragment(weights=[])], 0
    steps._meet = lambda part: 8

    sent = [steps.settle(3), steps.settle(3), steps.settle(4), steps.settle(5)]

    assert sent == [8, 0, 0, 8]  # in the fourth step they meet anyway
