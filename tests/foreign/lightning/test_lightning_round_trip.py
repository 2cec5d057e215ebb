"""What is written for Lightning is read back as the plan; what it cannot express is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.lightning import writing
from escala.foreign.orders import lacking
from escala.model.plan import Offload, Plan
from foreign.plans import ORDERS
from foreign.round import assert_written_or_refused, written

WRITTEN = {
    "single-device",
    "ddp",
    "zero-1",
    "zero-2-accumulating",
    "fsdp",
    "hsdp",
    "zero-3-offload",
}


@pytest.mark.parametrize("name", ORDERS)
def test_plans_come_back_or_are_refused_with_reasons(name: str, tmp_path: Path) -> None:
    assert assert_written_or_refused(writing, ORDERS[name], tmp_path) == (name in WRITTEN)


@pytest.mark.parametrize(
    ("plan", "strategy"),
    [
        (Plan(dp=8, zero=3, shard=8), 'sharding_strategy="SHARD_GRAD_OP"'),
        (Plan(dp=8, zero=3, shard=4), 'sharding_strategy="_HYBRID_SHARD_ZERO2", device_mesh=(2, 4)'),
        (
            Plan(
                dp=8, zero=3, shard=8, reshard=True, offload_optimizer=Offload.CPU, offload_params=Offload.CPU
            ),
            'sharding_strategy="FULL_SHARD", cpu_offload=True',
        ),
        (
            Plan(dp=8, zero=2, shard=8, offload_optimizer=Offload.CPU),
            "DeepSpeedStrategy(stage=2, offload_optimizer=True)",
        ),
    ],
)
def test_each_kind_of_shards_has_its_strategy(plan: Plan, strategy: str, tmp_path: Path) -> None:
    order = replace(ORDERS["fsdp"], plan=plan)

    [path] = written(writing, order, tmp_path)

    assert lacking(writing.TARGET, order) == []
    assert strategy in Path(path).read_text()


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan(dp=8, zero=2, shard=4), "replicas of shards"),
        (Plan(dp=8, zero=2, shard=8, offload_params=Offload.CPU), "offload of weights below ZeRO-3"),
        (Plan(dp=8, offload_optimizer=Offload.CPU), "offload without shards"),
    ],
)
def test_combinations_that_no_strategy_has_are_refused(plan: Plan, reason: str) -> None:
    assert any(reason in each for each in lacking(writing.TARGET, replace(ORDERS["fsdp"], plan=plan)))
