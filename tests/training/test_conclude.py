"""What a run comes to, from its steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.catalog import cluster_for
from escala.catalog.networks import network
from escala.model.plan import Plan
from escala.planning.defaults import Question, answerable
from escala.training.conclude import concluded, run_record
from escala.training.job import Choices, Job
from escala.training.steprecord import STEP_SCHEMA, StepRecord


def job(folder: Path = Path("run"), steps: int = 10) -> Job:
    """GPT-2 on two H100, batch 8 of 512 tokens."""
    question = Question(
        network=network("gpt2"), cluster=cluster_for("h100-sxm", 2), sequence_tokens=512, global_batch=8
    )
    plan = Plan(dp=2, micro_batch=4)
    return Job(problem=answerable(question)[0], plan=plan, folder=folder, choices=Choices(steps=steps))


def record(step: int, step_s: float, **given) -> StepRecord:
    return StepRecord(
        **{
            "schema": STEP_SCHEMA,
            "step": step,
            "samples": 8 * step,
            "loss": 10.0 - step,
            "learning_rate": 1e-3,
            "gradient_norm": 1.0,
            "step_s": step_s,
            "wait_s": 0.0,
            "tokens_per_s": 4096 / step_s,
            "mfu": 0.5,
            "peak_bytes": None,
            "elapsed_s": 1.0,
            "left_s": 1.0,
            "is_observed": False,
            "is_skipped": False,
            **given,
        }
    )


def test_warm_up_and_observed_steps_are_not_timed():
    steps = [
        record(1, 90.0),
        record(2, 80.0),
        record(3, 70.0),
        record(4, 1.0),
        record(5, 50.0, is_observed=True),
    ]

    found = run_record(job(), [*steps, record(6, 3.0), record(7, 2.0)], None)

    assert found is not None
    assert found.step is not None
    assert (found.step.median_s, found.step.samples, found.step.warmup_samples) == (2.0, 3, 3)
    # 8 samples of 512 tokens in 2 s
    assert found.tokens_per_s.value == pytest.approx(8 * 512 / 2.0)
    assert found.last_step == 7


def test_a_sample_of_local_steps_is_the_mean_of_a_whole_round():
    # rounds of 4 steps: the first has warm-up in it, the last is cut off; 1, 1, 1, 9 and 2, 2, 2, 10
    seconds = [50.0, 50.0, 50.0, 50.0, 1.0, 1.0, 1.0, 9.0, 2.0, 2.0, 2.0, 10.0, 7.0]
    local = replace(job(), plan=Plan(dp=2, micro_batch=4, local_steps=4))

    found = run_record(local, [record(step, each) for step, each in enumerate(seconds, 1)], None)

    assert (found.step.median_s, found.step.samples) == (3.5, 2)


def test_the_peak_of_an_observed_step_stands_where_no_allocator_tells_one():
    plain = [record(step, 1.0) for step in range(1, 6)]
    told = [replace(each, peak_bytes=7e9) for each in plain]

    assert run_record(job(), plain, 5e9).memory[0].peak_bytes == 5e9
    assert run_record(job(), told, 5e9).memory[0].peak_bytes == 7e9
    assert run_record(job(), plain, None).memory == ()


def test_too_few_steps_are_told_without_a_comparison():
    found = concluded(
        job(),
        [record(1, 1.0)],
        peak_bytes=None,
        traces=None,
        is_interrupted=True,
        checkpoint=None,
        notes=(),
    )

    assert (found.run, found.verified, found.profile, found.cause) == (None, None, None, None)
    assert found.unsaid == (
        "predicted against measured: too few steps",
        "the step term by term: too few steps were run to observe some",
    )


def test_a_run_is_set_beside_its_prediction():
    found = concluded(
        job(),
        [record(step, 0.5) for step in range(1, 11)],
        peak_bytes=None,
        traces=None,
        is_interrupted=False,
        checkpoint=Path("run/checkpoints/step-00000010"),
        notes=("resumed",),
    )

    assert found.verified is not None
    assert found.verified.compared[0].recorded == 0.5
    assert (found.first_loss, found.last_loss, found.held_out_loss) == (9.0, 0.0, None)
    assert found.plan_title == "DDP 2 · mb 4"
