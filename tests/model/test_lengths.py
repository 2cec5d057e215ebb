"""Samples of unequal length: by hand, by drawing samples, and equal lengths as the limit."""

from dataclasses import replace

import numpy as np
import pytest

from escala.model.estimate import estimate, time_of
from escala.model.flops import model_flop
from escala.model.lengths import dynamic_share, largest_score, row_lengths, uneven_s, useful_shares
from escala.model.matmuls import Shape
from escala.model.network import Attention
from escala.model.plan import ContextKind, Plan, Plans
from escala.model.traffic import context_bytes
from escala.model.workload import Batching, Lengths

VARIED = Batching.PADDED, Batching.GROUPED, Batching.MASKED
SOME = (100.0, 200.0, 400.0, 1000.0)


def with_lengths(problem, batching: Batching, *tokens: float):
    lengths = Lengths(quantile_tokens=tokens, batching=batching)
    return replace(problem, workload=replace(problem.workload, lengths=lengths))


def columns(*values: float):
    return np.array(values)


@pytest.mark.parametrize("batching", list(Batching))
def test_samples_as_long_as_the_sequence_change_nothing(batching, ideal, llama):
    problem = ideal(llama(), devices=8, batch=64, sequence=1024)
    split = Plan(dp=4, cp=2, zero=3, shard=8, micro_batch=16)
    plans = Plans.of([Plan(dp=8, micro_batch=4, micro_batches=2), split])

    plain, equal = estimate(problem, plans), estimate(with_lengths(problem, batching, 1024.0, 1024.0), plans)

    assert equal.step_s == pytest.approx(plain.step_s, rel=1e-12)
    assert list(equal.memory.needed_bytes) == list(plain.memory.needed_bytes)
    assert equal.mfu == pytest.approx(plain.mfu, rel=1e-12)


def test_the_longest_of_two_samples_by_hand(ideal, llama):
    work = with_lengths(ideal(llama(), sequence=1000), Batching.PADDED, 100.0, 300.0).workload

    # of two draws both are 100 in one case of four
    assert row_lengths(work, np.array([1, 2])).tokens == pytest.approx([200, 100 / 4 + 300 * 3 / 4])
    assert row_lengths(work, np.array([2])).squared_tokens == pytest.approx([100**2 / 4 + 300**2 * 3 / 4])


def test_longer_samples_are_cut_at_the_sequence(ideal, llama):
    work = with_lengths(ideal(llama(), sequence=500), Batching.GROUPED, 100.0, 900.0).workload

    assert row_lengths(work, np.array([4])).tokens == pytest.approx([300])


@pytest.mark.parametrize("batching", VARIED)
def test_products_grow_with_tokens_and_attention_with_their_squares(batching, ideal, llama):
    problem = ideal(llama(ends=False), batch=1, sequence=1000)
    plan = Plans.of(Plan())
    whole, varied = time_of(problem, plan), time_of(with_lengths(problem, batching, *SOME), plan)

    # padded with micro-batch 1 is no padding: mean 425; under masks rows are full
    tokens = 1.0 if batching is Batching.MASKED else 425 / 1000
    squares = (100**2 + 200**2 + 400**2 + 1000**2) / (100 + 200 + 400 + 1000)
    keys = (squares + 1) / (1000 + 1)  # causal queries see (n + 1) / 2 keys
    assert varied.matmul_s[0] == pytest.approx(whole.matmul_s[0] * tokens, rel=1e-9)
    assert varied.attention_s[0] == pytest.approx(whole.attention_s[0] * tokens * keys, rel=1e-9)


def test_without_masks_packed_samples_attend_to_each_other(ideal, llama):
    problem, plan = ideal(llama(), batch=1, sequence=1000), Plans.of(Plan())

    packed = with_lengths(problem, Batching.PACKED, *SOME)

    assert time_of(packed, plan).step_s[0] == time_of(problem, plan).step_s[0]


def test_useful_work_is_that_of_the_samples(ideal, llama):
    problem = ideal(llama(), sequence=1000)
    full = model_flop(problem.workload)

    assert useful_shares(with_lengths(problem, Batching.PADDED, 250.0, 750.0).workload) == pytest.approx(
        # half of the tokens; (250^2 + 750^2) / 2 of 1000^2 scores
        (0.5, 0.3125)
    )
    assert model_flop(with_lengths(problem, Batching.PADDED, 1000.0).workload) == full
    assert 0.3 * full < model_flop(with_lengths(problem, Batching.PADDED, 250.0, 750.0).workload) < 0.5 * full


def drawn_wait_s(tokens, plan: Plan, linear_s: float, attention_s: float, rounds: int = 20_000) -> float:
    """Mean wait for the slowest replica over so many steps of drawn samples, padded by micro-batch."""
    shape = (rounds, plan.dp, plan.micro_batches, plan.micro_batch)
    rows = np.random.default_rng(7).choice(tokens, shape).max(axis=3)
    own = np.random.default_rng(8).choice(tokens, (200_000, plan.micro_batch)).max(axis=1)
    seconds = linear_s * rows / own.mean() + attention_s * rows**2 / (own**2).mean()
    if plan.zero >= 3:
        return float((seconds.max(axis=1) - linear_s - attention_s).sum(axis=1).mean())
    return float(seconds.sum(axis=2).max(axis=1).mean() - plan.micro_batches * (linear_s + attention_s))


@pytest.mark.parametrize(
    ("plan", "tolerance"),
    [
        # meeting in each micro-batch: exact order statistics
        (Plan(dp=8, zero=3, shard=8, micro_batch=2, micro_batches=4), 0.01),
        (Plan(dp=8, micro_batch=2), 0.01),
        # meeting once a step: sums are taken for normal
        (Plan(dp=8, micro_batch=2, micro_batches=16), 0.1),
    ],
)
def test_waiting_is_that_of_drawn_samples(plan, tolerance, ideal, llama):
    problem = with_lengths(ideal(llama(), devices=8, sequence=1000), Batching.PADDED, *SOME)

    predicted = uneven_s(problem, Plans.of(plan), columns(2.0), columns(1.0))[0]

    assert predicted == pytest.approx(drawn_wait_s(SOME, plan, 2.0, 1.0), rel=tolerance)


def test_documents_fill_rows_unevenly_as_drawn_ones_do(ideal, llama):
    problem = with_lengths(ideal(llama(), devices=8, sequence=20_000), Batching.MASKED, *SOME)
    plan = Plan(dp=8, micro_batch=4)
    documents = np.random.default_rng(7).choice(SOME, (4000, 8, 400))
    inside = documents.cumsum(axis=2) <= 4 * 20_000
    squares = (documents**2 * inside).sum(axis=2)
    drawn = (squares.max(axis=1) / squares.mean(axis=1)).mean() - 1

    assert uneven_s(problem, Plans.of(plan), columns(5.0), columns(1.0))[0] == pytest.approx(drawn, rel=0.1)


def test_grouped_samples_are_alike_on_all_replicas(ideal, llama):
    problem = with_lengths(ideal(llama(), devices=8), Batching.GROUPED, *SOME)

    assert uneven_s(problem, Plans.of(Plan(dp=8)), columns(1.0), columns(1.0))[0] == 0


def test_the_largest_of_normal_values_by_tables():
    # exact: 0, 0.564, 1.424, 2.508 (Harter 1961)
    assert largest_score(np.array([1, 2, 8, 100])) == pytest.approx([0, 0.564, 1.424, 2.508], abs=0.03)


@pytest.mark.parametrize("kind", list(ContextKind))
def test_dynamic_context_parallelism_of_equal_lengths_is_static(kind, ideal, llama):
    problem = with_lengths(ideal(llama(), devices=8, batch=8, sequence=1024), Batching.MASKED, 1024.0)
    static = Plan(dp=2, cp=4, cp_kind=kind, micro_batch=4)

    times = time_of(problem, Plans.of([static, replace(static, dynamic_cp=True)])).step_s

    assert times[1] == times[0]


def test_short_sequences_are_exchanged_among_fewer_ranks(ideal, llama):
    problem = with_lengths(ideal(llama(), devices=4, sequence=1000), Batching.MASKED, 250.0, 500.0, 1000.0)
    plans = Plans.of([Plan(cp=4, cp_kind=kind, dynamic_cp=True) for kind in ContextKind])

    # at most 250 tokens a rank: 1, 2 and 4 ranks, in place of 4
    copies = (250 * 0 + 500 * 1 + 1000 * 3) / (1750 * 3)
    heads = (250 * 0 + 500 * 1 / 2 + 1000 * 3 / 4) / (1750 * 3 / 4)
    assert dynamic_share(problem, plans) == pytest.approx([copies, copies, heads])


def test_dynamic_context_parallelism_sends_less_and_does_not_wait(ideal, llama):
    problem = with_lengths(ideal(llama(), devices=8, batch=8, sequence=1000), Batching.MASKED, *SOME)
    static = Plan(dp=2, cp=4, micro_batch=4)

    own, dynamic = (time_of(problem, Plans.of(plan)) for plan in (static, replace(static, dynamic_cp=True)))

    share = dynamic_share(problem, Plans.of(replace(static, dynamic_cp=True)))[0]
    assert dynamic.context_parallel_s[0] == pytest.approx(share * own.context_parallel_s[0])
    assert dynamic.straggler_s[0] < own.straggler_s[0]


def test_fewer_key_heads_than_ulysses_ranks_are_sent_in_copies(ideal, llama):
    (block,) = llama().main.blocks
    attention = next(part for part in block.parts if isinstance(part, Attention))
    shapes = [Shape.of(Plans.of(Plan(cp=cp)), 1024.0) for cp in (4, 16)]

    few, many = (context_bytes(attention, shape)[1][0] / shape.tokens[0] for shape in shapes)

    # 16 heads of queries and outputs and 4 of keys and values, 128 wide, 2 bytes; 16 ranks: 4 copies
    assert few == 2 * 128 * (2 * 16 + 2 * 4)
    assert many == 2 * 128 * (2 * 16 + 2 * 4 * 4)
