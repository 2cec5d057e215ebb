"""Data parallelism in every form against one process."""

import pytest

pytest.importorskip("torch")

from parallel.oracle import Case, differences, judge, plan

pytestmark = [pytest.mark.optional, pytest.mark.slow]
TWO = (
    Case(name="ddp", kind="llama", plan=plan(dp=2)),
    Case(name="ddp-accumulated", kind="gpt2", plan=plan(dp=2, micro_batches=2), has_documents=True),
    Case(name="zero1", kind="llama", plan=plan(dp=2, zero=1, shard=2)),
    Case(name="zero2", kind="llama", plan=plan(dp=2, zero=2, shard=2)),
    Case(name="zero3", kind="llama", plan=plan(dp=2, zero=3, reshard=True, shard=2)),
    Case(
        name="zero3-accumulated", kind="gpt2", plan=plan(dp=2, zero=3, reshard=True, shard=2, micro_batches=4)
    ),
    Case(name="zero3-gathered-once", kind="moe", plan=plan(dp=2, zero=3, shard=2, micro_batches=2)),
)

WRONG = Case(name="wrong", kind="llama", plan=plan(dp=2), is_wrong=True)


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory):
    return differences((*TWO, WRONG), 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("case", TWO, ids=lambda case: case.name)
def test_data_parallel_training_equals_one_process(on_two_ranks, case):
    judge(on_two_ranks[case.name], case)


def test_the_oracle_sees_ranks_that_learn_from_the_same_samples(on_two_ranks):
    with pytest.raises(AssertionError, match="loss differs"):
        judge(on_two_ranks["wrong"], WRONG)
