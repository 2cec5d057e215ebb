from escala.model.plan import Plan, Precision, Recompute, Schedule
from escala.training.layout_list import Difference, Verdict, layout_of, missing, usual

PLAN = Plan(
    dp=2, zero=3, shard=2, reshard=True, tp=2, sp=True, pp=2, schedule=Schedule.ONE_F_ONE_B,
    micro_batch=4, micro_batches=16, recompute=Recompute.FULL,
)  # fmt: skip


def test_passes_are_added_in_the_order_in_which_they_are_applied_on_as_many_ranks():
    found = layout_of("all", PLAN)

    assert [name for name, _ in found.passes] == ["replicas", "stages", "tensors", "recompute", "sharding"]
    assert [plan.dp for _, plan in found.passes] == [8, 4, 2, 2, 2]
    assert {plan.devices for _, plan in found.passes} == {8}
    assert found.passes[-1][1] == found.plan


def test_every_plan_on_the_way_divides_the_same_samples_into_its_micro_batches():
    found = layout_of("all", PLAN)

    assert found.plan.micro_batches == 4  # two for each stage
    assert found.rows == 32
    for _, plan in found.passes:
        assert found.rows % (plan.dp * plan.micro_batches) == 0


def test_plans_are_compared_in_fp32():
    assert layout_of("half", Plan(dp=2)).plan.precision is Precision.FP32


def test_usual_layouts_fill_the_ranks():
    assert {each.plan.devices for each in usual(4)} == {4}


def test_what_is_no_number_is_not_within_the_tolerance():
    assert Difference(loss=0.0, norm=5e-6, weights=0.0).is_within(5e-6)
    assert not Difference(loss=float("nan"), norm=0.0, weights=0.0).is_within(5e-6)
    assert not Difference(loss=0.0, norm=0.0, weights=6e-6).is_within(5e-6)


def test_layouts_without_a_verdict_are_missing():
    layouts = usual(2)
    found = [Verdict(name="DDP", devices=2, verdict="same")]

    assert [each.name for each in missing(layouts, found)] == ["FSDP", "TP + SP", "PP (1F1B)", "CP"]
