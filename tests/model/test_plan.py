import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.plan import (
    COLUMNS,
    PLACEMENTS,
    Compile,
    ContextKind,
    Offload,
    Plan,
    Plans,
    Precision,
    Recompute,
    Schedule,
    Split,
    concatenate,
)

PLANS = st.builds(
    Plan,
    dp=st.integers(1, 4096),
    zero=st.integers(0, 3),
    reshard=st.booleans(),
    shard=st.integers(1, 4096),
    tp=st.integers(1, 8),
    sp=st.booleans(),
    pp=st.integers(1, 16),
    schedule=st.sampled_from(Schedule),
    virtual_stages=st.integers(1, 8),
    split=st.sampled_from(Split),
    stage_layers=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    cp=st.integers(1, 16),
    cp_kind=st.sampled_from(ContextKind),
    placement=st.sampled_from(PLACEMENTS),
    micro_batch=st.integers(1, 64),
    micro_batches=st.integers(1, 4096),
    recompute=st.sampled_from(Recompute),
    recompute_layers=st.integers(0, 100),
    offload_optimizer=st.sampled_from(Offload),
    precision=st.sampled_from(Precision),
    compile=st.sampled_from(Compile),
    fused_loss=st.booleans(),
)


@given(st.lists(PLANS, min_size=1, max_size=6))
def test_columns_give_every_plan_back(plans):
    columns = Plans.of(plans)

    assert [columns[row] for row in range(len(columns))] == plans


@given(st.lists(PLANS, min_size=2, max_size=6), st.data())
def test_rows_are_taken_in_the_order_asked(plans, data):
    rows = data.draw(st.lists(st.integers(0, len(plans) - 1), min_size=1, max_size=6))

    taken = Plans.of(plans).take(rows)

    assert [taken[i] for i in range(len(taken))] == [plans[row] for row in rows]


def test_one_plan_is_a_batch_of_one():
    assert len(Plans.of(Plan())) == 1
    assert Plans.of(Plan(dp=3))[0] == Plan(dp=3)


def test_devices_are_the_product_of_four_degrees():
    plan = Plan(dp=2, tp=3, pp=5, cp=7, ep=2)

    # experts share the ranks that are there
    assert plan.devices == 210
    assert Plans.of(plan).devices.tolist() == [210]


def test_columns_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        Plans.of(Plan()).dp[0] = 2


def test_every_field_but_the_split_list_is_a_column():
    assert set(COLUMNS) | {"stage_split", "splits"} == set(Plans.__slots__)


def test_tables_are_joined_in_order():
    one, two = Plans.of([Plan(dp=1), Plan(dp=2)]), Plans.of(Plan(dp=3))

    assert concatenate([one, two]).dp.tolist() == [1, 2, 3]


def test_a_mask_takes_what_is_true():
    plans = Plans.of([Plan(dp=n) for n in (1, 2, 3)])

    assert plans.take(np.array([True, False, True])).dp.tolist() == [1, 3]
