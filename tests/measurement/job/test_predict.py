"""A run as a plan, by hand; no torch is needed."""

from dataclasses import replace

import pytest

from escala.catalog import cluster_for
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.measurement.job.predict import Asked, planned
from escala.measurement.job.record import StepRun
from escala.measurement.job.request import Sizes
from escala.measurement.job.spread import spread
from escala.model.plan import Precision, Recompute

RUN = StepRun(
    target="train:make",
    device="cuda:0",
    ranks=4,
    threads=0,
    parallelism="data parallel",
    model="LlamaForCausalLM",
    parameters=1,
    optimizer="AdamW",
    samples=2,
    tokens=2 * 1024,
    precision=None,
    recomputes=False,
    step_s=spread([0.1]),
    unit="tokens",
    rate_per_s=None,
    flop=None,
    peak_bytes=None,
    memory=None,
    usage=(),
    what_if=None,
    notes=(),
    is_interrupted=False,
)
SIZES = Sizes(micro_batch=1, sequence_tokens=None, precision="bf16")


def asked(**changes) -> Asked:
    given = {"network": network("llama-3.2-1b"), "cluster": cluster_for("h100-sxm", 4), "unknown": ""}
    return Asked(engine="pytorch", **(given | changes))


def test_a_run_is_data_parallel_over_its_ranks_with_the_batches_it_had():
    found = planned(asked(), RUN, SIZES)

    assert (found.plan.dp, found.plan.zero, found.plan.micro_batch, found.plan.micro_batches) == (4, 0, 2, 1)
    assert (found.plan.precision, found.plan.recompute) == (Precision.BF16, Recompute.NONE)
    # 2 samples on each of 4 ranks; 2,048 tokens of 2 samples
    assert (found.problem.workload.global_batch, found.problem.workload.sequence_tokens) == (8, 1024)


def test_a_model_that_recomputes_is_planned_so():
    assert planned(asked(), replace(RUN, recomputes=True), SIZES).plan.recompute is Recompute.FULL


def test_batches_without_tokens_have_the_length_that_the_person_says():
    bare = replace(RUN, tokens=None)

    found = planned(asked(), bare, replace(SIZES, sequence_tokens=512))

    assert found.problem.workload.sequence_tokens == 512
    with pytest.raises(InvalidInput, match="no input_ids to count tokens by; give --seq"):
        planned(asked(), bare, SIZES)


@pytest.mark.parametrize(
    ("given", "run", "said"),
    [
        ({"network": None, "unknown": "name it with --model"}, RUN, "name it with --model"),
        ({"cluster": None}, RUN, "no machine is given; add --cluster"),
        ({}, replace(RUN, optimizer="SGD"), "the optimizer SGD is none of AdamW, Adam"),
        ({}, replace(RUN, parallelism="own"), "spreads its model in a way that no plan here describes"),
        ({}, replace(RUN, samples=None), "no batch is seen whose samples could be counted"),
    ],
)
def test_what_no_plan_describes_is_not_predicted(given, run: StepRun, said: str):
    with pytest.raises(InvalidInput, match=said):
        planned(asked(**given), run, SIZES)
