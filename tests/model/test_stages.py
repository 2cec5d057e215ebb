import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.network import Attention, Block, FeedForward, Network, Stack, StackRole
from escala.model.plan import Plan, Plans, Schedule, Split
from escala.model.stages import deal, in_flight, layer_kinds, mean_slots, rank_stages, slots, stage_layers

DENSE = Block(name="dense", parts=(Attention(heads=4, kv_heads=4, head_dim=8, value_head_dim=8),))
OTHER = Block(name="other", parts=(FeedForward(width=64),))


def network(pattern: tuple[int, ...]) -> Network:
    stack = Stack(role=StackRole.DECODER, hidden=32, blocks=(DENSE, OTHER), pattern=pattern)
    return Network(name="two kinds", family="test", stacks=(stack,))


def held(schedule: Schedule, pp: int, micro_batches: int, virtual: int = 1) -> dict[int, float]:
    """Micro-batches in flight by lowest rank of each slot, on layers that make every rank another slot."""
    layers = network(tuple([0] * (pp * virtual)))
    plans = Plans.of(Plan(pp=pp, schedule=schedule, micro_batches=micro_batches, virtual_stages=virtual))
    pairs = slots(layers, plans)
    return dict(zip(pairs.rank.astype(int).tolist(), in_flight(plans, pairs).tolist(), strict=True))


@pytest.mark.parametrize(
    ("layers", "stages", "split", "dealt"),
    [
        (8, 4, Split.EVEN, [2, 2, 2, 2]),
        (10, 4, Split.EVEN, [3, 3, 2, 2]),
        (6, 4, Split.BALANCED, [1, 2, 2, 1]),
        (8, 4, Split.BALANCED, [1, 3, 3, 1]),
        (5, 1, Split.BALANCED, [5]),
    ],
)
def test_layers_are_dealt(layers, stages, split, dealt):
    assert deal(layers, stages, split) == dealt


def test_llama_405b_deals_7_layers_to_the_ends_and_8_to_the_others():
    # 126 layers + embedding + head = 128 = 16 * 8, as Llama 3 was trained
    assert deal(126, 16, Split.BALANCED) == [7] + [8] * 14 + [7]


def test_custom_stages_are_those_given():
    assert deal(6, 3, Split.CUSTOM, (1, 4, 1)) == [1, 4, 1]


@given(
    layers=st.integers(1, 200), stages=st.integers(1, 64), split=st.sampled_from([Split.EVEN, Split.BALANCED])
)
def test_every_layer_is_dealt_once(layers, stages, split):
    ends = 2 if split is Split.BALANCED else 0
    if stages > layers + ends:
        stages = layers + ends
    dealt = deal(layers, stages, split)

    assert sum(dealt) == layers
    assert len(dealt) == stages
    assert min(dealt) >= 0


@given(layers=st.integers(1, 200), stages=st.integers(1, 64))
def test_even_stages_differ_by_one_layer_at_most(layers, stages):
    dealt = deal(layers, stages, Split.EVEN)

    assert max(dealt) - min(dealt) <= 1


def test_interleaving_deals_stages_round_robin():
    assert rank_stages(1, 4, 3, Schedule.INTERLEAVED) == [1, 5, 9]


def test_the_v_schedule_comes_back_up():
    assert [rank_stages(rank, 4, 2, Schedule.ZERO_BUBBLE_V) for rank in range(4)] == [
        [0, 7],
        [1, 6],
        [2, 5],
        [3, 4],
    ]


def test_equal_ranks_are_one_slot_at_the_lowest_of_them():
    pairs = slots(network((0,) * 8), Plans.of(Plan(pp=4, schedule=Schedule.ONE_F_ONE_B, micro_batches=4)))

    # first has the embedding, last the head, ranks 1 and 2 are alike
    assert pairs.rank.tolist() == [0, 1, 3]
    assert pairs.alike.tolist() == [1, 2, 1]
    assert pairs.has_embedding.tolist() == [1, 0, 0]
    assert pairs.has_head.tolist() == [0, 0, 1]
    assert pairs.layers.tolist() == [2, 2, 2]


def test_slots_count_kinds_of_layers():
    # 6 layers: two dense first; ranks hold (2, 0), (0, 2), (0, 2)
    pairs = slots(network((0, 0, 1, 1, 1, 1)), Plans.of(Plan(pp=3, schedule=Schedule.ONE_F_ONE_B)))

    assert pairs.counts.tolist() == [[2, 0], [0, 2], [0, 2]]


def test_the_v_schedule_puts_embedding_and_head_on_one_rank():
    plan = Plan(pp=2, schedule=Schedule.ZERO_BUBBLE_V, virtual_stages=2, micro_batches=4)

    pairs = slots(network((0,) * 4), Plans.of(plan))

    assert pairs.has_embedding.tolist() == [1, 0]
    assert pairs.has_head.tolist() == [1, 0]


def test_pairs_of_many_plans_lie_one_after_the_other():
    plans = Plans.of([Plan(), Plan(pp=2, schedule=Schedule.ONE_F_ONE_B), Plan(dp=4)])

    pairs = slots(network((0,) * 4), plans)

    assert pairs.row.tolist() == [0, 1, 1, 2]
    assert pairs.first.tolist() == [0, 1, 3]
    assert pairs.layers.tolist() == [4, 2, 2, 4]


def test_the_mean_rank_holds_its_share_of_everything():
    pairs = mean_slots(network((0, 0, 1, 1, 1, 1)), Plans.of(Plan(pp=4, schedule=Schedule.ONE_F_ONE_B)))

    assert pairs.counts.tolist() == [[0.5, 1.0]]
    assert pairs.has_head.tolist() == [0.25]


def test_custom_stage_layers_reach_the_slots():
    layers = network((0,) * 6)
    plans = Plans.of(Plan(pp=3, schedule=Schedule.ONE_F_ONE_B, split=Split.CUSTOM, stage_layers=(1, 4, 1)))

    assert stage_layers(layers, plans, 0) == [1, 4, 1]
    assert slots(layers, plans).layers.tolist() == [1, 4, 1]


def test_layer_kinds_follow_the_pattern():
    assert layer_kinds(network((0, 1, 1, 0))) == [0, 1, 1, 0]


def test_1f1b_holds_as_many_micro_batches_as_ranks_behind():
    # p - r
    assert held(Schedule.ONE_F_ONE_B, 4, 16) == {0: 4, 1: 3, 3: 1}


def test_gpipe_holds_all_micro_batches():
    assert held(Schedule.GPIPE, 4, 16) == {0: 16, 1: 16, 3: 16}


@pytest.mark.parametrize(("pp", "virtual"), [(4, 2), (8, 3), (16, 8)])
def test_interleaving_holds_1_plus_the_published_factor(pp, virtual):
    # Korthikanti 2022, section 4.2.3: L (1 + (p - 1) / (p m)) layers against L of 1F1B on the first rank
    factor = held(Schedule.INTERLEAVED, pp, 8 * pp, virtual)[0] / held(Schedule.ONE_F_ONE_B, pp, 8 * pp)[0]

    assert factor == pytest.approx(1 + (pp - 1) / (pp * virtual), rel=1e-12)


def test_zero_bubble_v_holds_what_1f1b_holds_on_its_first_rank_on_every_rank():
    # Qi 2024, section 4: p micro-batches on all ranks
    assert set(held(Schedule.ZERO_BUBBLE_V, 8, 64, 2).values()) == {8}


def test_no_schedule_holds_more_than_there_are():
    for schedule, virtual in (
        (Schedule.ONE_F_ONE_B, 1),
        (Schedule.ZERO_BUBBLE_V, 2),
        (Schedule.INTERLEAVED, 2),
    ):
        assert max(held(schedule, 8, 3, virtual).values()) <= 3


def test_without_a_pipeline_one_micro_batch_is_held():
    plans = Plans.of(Plan(micro_batches=32))

    assert in_flight(plans, slots(network((0,) * 4), plans)).tolist() == [1]


@given(
    pattern=st.lists(st.integers(0, 1), min_size=1, max_size=24),
    pp=st.integers(1, 6),
    virtual=st.integers(1, 3),
)
def test_ranks_together_hold_every_layer(pattern, pp, virtual):
    if pp * virtual > len(pattern):
        pp, virtual = 1, 1
    schedule = Schedule.INTERLEAVED if virtual > 1 else Schedule.ONE_F_ONE_B
    pairs = slots(network(tuple(pattern)), Plans.of(Plan(pp=pp, virtual_stages=virtual, schedule=schedule)))

    total = (pairs.counts * pairs.alike[:, None]).sum(axis=0)

    assert total.tolist() == np.bincount(pattern, minlength=2).tolist()
    assert pairs.alike.sum() == pp
    assert pairs.has_embedding.sum() == pairs.has_head.sum() == 1
