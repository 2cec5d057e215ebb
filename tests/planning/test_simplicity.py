import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.plan import Compile, ContextKind, Plan, Plans, Recompute, Schedule, Split
from escala.planning.simplicity import FAMILIES, POINTS, complexity, describe, family_masks

PIPE = {"pp": 4, "schedule": Schedule.ONE_F_ONE_B, "micro_batches": 8}


@pytest.mark.parametrize(
    ("plan", "points"),
    [
        (Plan(), 0),
        (Plan(dp=8), 1),
        (Plan(dp=8, zero=1, shard=8), 1),
        (Plan(dp=8, zero=3, reshard=True, shard=8), 2),
        (Plan(dp=8, zero=3, reshard=True, shard=4), 3),
        (Plan(tp=8, sp=True), 3),
        (Plan(dp=2, tp=4), 1 + 3),
        (Plan(**PIPE), 4),
        (Plan(**PIPE | {"schedule": Schedule.INTERLEAVED, "virtual_stages": 2}), 4 + 1),
        (Plan(**PIPE | {"schedule": Schedule.ZERO_BUBBLE_V, "virtual_stages": 2}), 4 + 2),
        (Plan(**PIPE, split=Split.BALANCED), 4 + 1),
        (Plan(cp=2), 3 + 1),
        (Plan(dp=4, ep=4), 1 + 3),
        (Plan(recompute=Recompute.SELECTIVE), 1),
        (Plan(recompute=Recompute.FULL, compile=Compile.DEFAULT, fused_loss=True), 3),
        (Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=2), 2),
        (Plan(dp=8, placement="dp-tp-cp-pp"), 1 + 1),
    ],
)
def test_points_add_up(plan, points):
    assert complexity(Plans.of(plan)).tolist() == [points]


def test_data_parallelism_is_simpler_than_sharding_and_that_than_cutting_the_network():
    assert POINTS["ddp"] < POINTS["zero"] < POINTS["hsdp"] <= POINTS["tp"] <= POINTS["ep"] < POINTS["pp"]


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        (Plan(), {"single"}),
        (Plan(dp=8), {"ddp"}),
        (Plan(dp=8, zero=1, shard=8), {"zero-1"}),
        (Plan(dp=8, zero=2, shard=8), {"zero-2"}),
        (Plan(dp=8, zero=3, shard=8), {"zero-2"}),
        (Plan(dp=8, zero=3, reshard=True, shard=8), {"zero-3"}),
        (Plan(dp=8, zero=3, reshard=True, shard=4), {"hsdp"}),
        (Plan(dp=2, tp=4, zero=3, reshard=True, shard=2), {"tp"}),
        (Plan(tp=2, cp=2, **PIPE), {"tp", "cp", "pp"}),
        (Plan(dp=8, ep=8), {"ep"}),
    ],
)
def test_a_plan_belongs_to_the_families_of_its_techniques(plan, names):
    masks = family_masks(Plans.of(plan))

    assert {name for name, mask in masks.items() if mask[0]} == names


def test_there_are_ten_families_with_a_mask_each():
    assert len(FAMILIES) == 10
    assert [family.name for family in FAMILIES] == list(family_masks(Plans.of(Plan())))


@given(
    dp=st.sampled_from([1, 2, 8]),
    tp=st.sampled_from([1, 4]),
    pp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    is_resharded=st.booleans(),
)
def test_every_plan_belongs_to_a_family(dp, tp, pp, cp, zero, is_resharded):
    replicas = dp * cp
    zero = zero if replicas > 1 else 0
    plan = Plan(dp=dp, tp=tp, pp=pp, cp=cp, zero=zero, shard=replicas if zero else 1, reshard=is_resharded)

    assert any(mask[0] for mask in family_masks(Plans.of(plan)).values())


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(), "1 device · mb 1"),
        (Plan(dp=8, micro_batch=2, micro_batches=4), "DDP 8 · mb 2 × 4"),
        (
            Plan(dp=8, zero=3, reshard=True, shard=8, recompute=Recompute.SELECTIVE, compile=Compile.DEFAULT),
            "FSDP 8 · mb 1 · selective recompute · compile",
        ),
        (Plan(dp=8, zero=3, shard=8, fused_loss=True), "FSDP 8 (no reshard) · mb 1 · fused loss"),
        (Plan(dp=16, zero=3, reshard=True, shard=8), "HSDP 2 × 8 · mb 1"),
        (Plan(dp=4, cp=4, zero=3, reshard=True, shard=8), "HSDP 2 × 2 × CP 4 (ring) · mb 1"),
        (Plan(dp=4, cp=4, zero=3, reshard=True, shard=4), "HSDP 4 (over CP) × CP 4 (ring) · mb 1"),
        (Plan(cp=4, zero=3, shard=4), "FSDP (over CP) (no reshard) × CP 4 (ring) · mb 1"),
        (Plan(dp=2, tp=8, sp=True, zero=1, shard=2), "ZeRO-1 2 × TP 8 + SP · mb 1"),
        (
            Plan(**PIPE | {"schedule": Schedule.INTERLEAVED, "virtual_stages": 8}, split=Split.BALANCED),
            "PP 4 (interleaved 8, balanced) · mb 1 × 8",
        ),
        (
            Plan(dp=4, ep=4, etp=2, tp=2, recompute=Recompute.FIRST_LAYERS, recompute_layers=3),
            "DDP 4 × TP 2 · EP 4 (expert TP 2) · mb 1 · recompute 3 layers",
        ),
        (
            Plan(dp=2, cp=2, cp_kind=ContextKind.ALL_GATHER, placement="tp-dp-cp-pp"),
            "DDP 2 × CP 2 (all-gather) · mb 1 · order tp-dp-cp-pp",
        ),
    ],
)
def test_a_plan_in_one_line(plan, text):
    assert describe(plan) == text
