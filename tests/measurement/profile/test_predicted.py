"""Every predicted term stands in one part, and messages by axis where the names of groups tell it."""

from collections.abc import Sequence

import pytest

from escala.catalog import engine
from escala.catalog.clusters import cluster_for
from escala.catalog.engines import assumptions
from escala.catalog.networks import network
from escala.measurement.profile.predicted import AXES, PARTS, beside
from escala.measurement.profile.record import Launches, Phases, Prediction, RankProfile, Traffic, Waits
from escala.model.explain import TERMS
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload

PROBLEM = Problem(
    workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=4096, global_batch=128),
    cluster=cluster_for("h100-sxm", 8, devices_per_node=None, network=None),
    engine=engine("pytorch"),
    assumptions=assumptions(),
)
DATA = Plan(dp=8, zero=3, shard=8, micro_batch=1, micro_batches=16)
BOTH = Plan(dp=4, tp=2, zero=3, shard=4, micro_batch=1, micro_batches=32)
PHASES = Phases(data_s=0.1, forward_s=1.0, backward_s=2.0, communication_s=0.5, optimizer_s=0.2, idle_s=0.2)
WAITS = Waits(compute_s=2.0, memory_s=1.2, launch_s=0.1, communication_s=0.5, input_s=0.1, idle_s=0.1)


def rank(*groups: tuple[str | None, float]) -> RankProfile:
    traffic = tuple(
        Traffic(
            operation="all_reduce",
            group=group,
            ranks=2,
            messages=1,
            payload_bytes=None,
            message_s=exposed_s,
            exposed_s=exposed_s,
            bus_bytes_per_s=None,
        )
        for group, exposed_s in groups
    )
    return RankProfile(
        rank=0,
        path="trace.json",
        step_s=4.0,
        phases=PHASES,
        waits=WAITS,
        message_s=0.5,
        hidden_s=0.0,
        traffic=traffic,
        launches=Launches(count=0, mean_s=0, gap_s=0),
        memory=(),
        flop=None,
    )


def prediction(plan: Plan, given: RankProfile, has_device: bool = False) -> Prediction:
    return beside((PROBLEM, plan), given, (), has_device=has_device)


def test_every_term_is_in_one_part_and_every_axis_term_in_one_axis():
    assert sorted(name for names in PARTS.values() for name in names) == sorted(TERMS)
    of_axes = [name for _, _, names in AXES.values() for name in names]
    assert len(set(of_axes)) == len(of_axes)


@pytest.mark.parametrize("has_device", [False, True])
def test_measured_parts_are_the_step(has_device: bool):
    found = prediction(DATA, rank(), has_device)

    parts = {each.part: each.measured_s for each in found.parts}
    # calling is part of the phases on a processor, and of idle on a device
    assert parts["forward and backward"] == pytest.approx(3.1 if has_device else 3.0, rel=1e-12)
    assert parts["waiting for other ranks"] is None
    assert sum(each or 0.0 for each in parts.values()) == pytest.approx(4.0, rel=1e-12)


def axes(plan: Plan, groups: Sequence[tuple[str | None, float]]) -> dict[str, float | None]:
    return {each.part: each.measured_s for each in prediction(plan, rank(*groups)).axes}


def test_a_plan_of_one_axis_has_all_messages_on_it():
    assert axes(DATA, [("default_pg", 0.3), (None, 0.2)]) == {"data parallel": 0.5}


@pytest.mark.parametrize(
    ("data", "tensor"),
    [
        ("mesh_dp", "mesh_tp"),
        ("mesh_fsdp", "mesh_tp"),
        ("dp_shard_cp", "tp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "TENSOR_MODEL_PARALLEL_GROUP"),
    ],
)
def test_names_of_groups_tell_their_axis(data: str, tensor: str):
    found = axes(BOTH, [(data, 0.3), (tensor, 0.2)])

    assert found == {"data parallel": 0.3, "tensor parallel": 0.2}


def test_a_group_without_a_telling_name_leaves_axes_unsaid():
    assert axes(BOTH, [("default_pg", 0.3), ("mesh_tp", 0.2)]) == {}


def test_terms_are_the_predicted_part():
    for part in prediction(BOTH, rank()).parts:
        terms_s = sum(term.predicted_s for term in part.terms)
        assert terms_s == pytest.approx(part.predicted_s, rel=1e-12)
