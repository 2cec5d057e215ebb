"""The nearest plan that a target can express: inside its abilities, fast, and no more changed than needed."""

from dataclasses import replace

import pytest

from emitting.fakes import FAKES, PIPED, PLAIN, SCHEDULER, SHARDING
from escala.emitting.fits import changes, fit, fits, step_of
from escala.foreign.orders import lacking
from escala.model.plan import Compile, ContextKind, Offload, Plan, Precision, Recompute
from foreign.plans import ORDERS

TARGETS = [each.TARGET for each in FAKES.values()]


def test_what_a_target_can_express_needs_no_other_plan() -> None:
    found = fit(PLAIN.TARGET, ORDERS["ddp"])

    assert (found.reasons, found.nearest) == ((), None)


@pytest.mark.parametrize("name", ORDERS)
def test_a_nearest_plan_can_be_expressed(name: str) -> None:
    order = ORDERS[name]

    for found in fits(TARGETS, order):
        if found.nearest is not None:
            assert lacking(found.target, replace(order, plan=found.nearest.plan)) == []
            assert found.nearest.plan.devices == order.plan.devices


def test_only_what_is_lacking_is_changed_where_that_is_fast() -> None:
    order = ORDERS["single-device"]

    found = fit(PLAIN.TARGET, order)

    assert found.reasons == ("torch.compile default: it has off",)
    assert found.nearest is not None
    assert found.nearest.plan == replace(order.plan, compile=Compile.OFF)
    assert found.nearest.changed == ("compile",)


def test_what_a_nearest_plan_loses_is_its_step_over_that_of_the_plan() -> None:
    order = ORDERS["single-device"]
    nearest = fit(PLAIN.TARGET, order).nearest
    assert nearest is not None
    with_compile, without = (
        step_of(order.problem, replace(order.plan, compile=each)) for each in (Compile.DEFAULT, Compile.OFF)
    )
    assert with_compile is not None
    assert without is not None

    assert nearest.ratio == pytest.approx(without / with_compile, rel=1e-12)


def test_sequence_parallelism_goes_with_tensor_parallelism_where_a_target_has_no_other() -> None:
    order = ORDERS["tp-pp-1f1b"]
    wide = replace(SHARDING.TARGET, abilities=replace(SHARDING.TARGET.abilities, zero=(0, 1, 3)))

    found = fit(wide, order)

    assert found.nearest is not None
    assert found.nearest.plan.tp > 1
    assert found.nearest.plan.sp


def test_a_kind_of_context_parallelism_that_is_lacking_becomes_one_that_is_not() -> None:
    found = fit(SHARDING.TARGET, ORDERS["fsdp-cp-ring"])

    assert found.reasons == ("context parallelism ring: it has all-gather",)
    assert found.nearest is not None
    assert found.nearest.plan.cp == 1 or found.nearest.plan.cp_kind is ContextKind.ALL_GATHER


def test_a_number_format_that_is_lacking_becomes_bf16() -> None:
    nearest = fit(SHARDING.TARGET, ORDERS["fsdp-fp8"]).nearest

    assert nearest is not None
    assert nearest.plan.precision is Precision.BF16


def test_a_method_that_is_lacking_has_no_nearest_plan() -> None:
    found = fit(SHARDING.TARGET, ORDERS["lora"])

    assert found.reasons == ("lora: it trains pretrain, full",)
    assert found.nearest is None


def test_a_plan_whose_time_is_not_predicted_has_no_loss() -> None:
    order = ORDERS["zero-3-offload"]
    on_disks = replace(order, plan=replace(order.plan, offload_optimizer=Offload.NVME))
    nearest = fit(SHARDING.TARGET, on_disks).nearest

    assert nearest is not None
    assert nearest.ratio is None


def test_those_that_can_express_come_first_and_the_plans_own_engine_before_them() -> None:
    order = ORDERS["ddp"]

    assert [each.target.name for each in fits(TARGETS, order)] == ["sharding", "piped", "plain", "scheduler"]


def test_the_others_come_by_how_little_they_lose() -> None:
    found = fits(TARGETS, ORDERS["fsdp"])
    seconds = [each.nearest.step_s if each.nearest else float("inf") for each in found[1:]]

    assert found[0].target.name == SHARDING.TARGET.name
    assert seconds == sorted(seconds)
    assert found[-1].nearest is None
    assert {each.target.name for each in found[1:]} == {"piped", "plain", "scheduler"}


def test_a_target_keeps_the_dispatcher_that_it_has() -> None:
    order = replace(ORDERS["fsdp-ep"], plan=replace(ORDERS["fsdp-ep"].plan, recompute=Recompute.NONE))
    nearest = fit(PIPED.TARGET, order).nearest

    assert nearest is not None
    assert nearest.plan.dispatcher is order.plan.dispatcher


def test_changes_are_fields() -> None:
    assert changes(Plan(dp=2, compile=Compile.DEFAULT), Plan(dp=4)) == ("dp", "compile")
    assert SCHEDULER.TARGET.wraps
