"""States in host memory and on disks: bytes on device and host, seconds of the way, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from escala import catalog
from escala.model import stages
from escala.model.cluster import Host
from escala.model.estimate import estimate
from escala.model.host import node_moved_bytes
from escala.model.memory import Verdict
from escala.model.offload import link_bytes_per_s
from escala.model.parameters import network_parameters
from escala.model.plan import Offload, OptimizerStep, Plan, Plans, Recompute
from escala.model.rejects import Reject
from escala.model.workload import Optimizer

STREAMED = Plan(zero=3, reshard=True, offload_params=Offload.CPU, offload_optimizer=Offload.CPU)
"""All states of one device in host memory."""


def on_host(problem, *, prefetches: bool = True, **host):
    """A host of 10 GB/s each way, and memory of 100 GB/s, which reach what they promise."""
    given = {"pcie_bytes_per_s": 10e9, "is_pcie_measured": True, "memory_bytes_per_s": 100e9} | host
    known = replace(problem.assumptions, host_memory_efficiency=1.0)
    cluster = replace(problem.cluster, host=Host(**given))
    found = replace(problem, cluster=cluster, assumptions=known)
    if prefetches:
        return found
    messages = tuple((name, replace(each, prefetches=False)) for name, each in problem.engine.messages)
    return replace(found, engine=replace(found.engine, messages=messages))


def result(problem, plan: Plan):
    return estimate(problem, Plans.of(plan))


def test_offloaded_weights_come_forward_and_backward_and_gradients_go(ideal, llama):
    # fp32 shards up twice, 8 bytes; down in backward 4, beside the way up: 4 + 4 at 10 GB/s
    problem = on_host(ideal(llama()), prefetches=False)
    total = network_parameters(problem.workload.network).total

    assert result(problem, STREAMED).time.offload_s[0] == pytest.approx(8 * total / 10e9)


def test_without_prefetch_efficiency_is_that_of_zero_infinity(ideal, llama):
    """Efficiency = ait * bandwidth / (ait * bandwidth + peak), ait FLOP a byte moved."""
    problem = on_host(ideal(llama(), batch=4), prefetches=False)
    plan = replace(STREAMED, micro_batch=4)
    time = result(problem, plan).time
    busy = float(time.matmul_s[0] + time.attention_s[0] + time.head_s[0])
    moved_bytes = 10e9 * float(time.offload_s[0])
    intensity = busy * 1e14 / moved_bytes

    rule = intensity * 10e9 / (intensity * 10e9 + 1e14)

    assert busy / (busy + float(time.offload_s[0])) == pytest.approx(rule)


def test_transfers_hide_behind_long_micro_batches(ideal, llama):
    time = result(on_host(ideal(llama(), batch=64)), replace(STREAMED, micro_batch=64)).time

    assert time.offload_s[0] < 0.01 * time.step_s[0]


def test_the_host_updates_at_the_speed_of_its_memory(ideal, llama):
    # 30 bytes a parameter at 100 GB/s
    problem = on_host(ideal(llama()))
    total = network_parameters(problem.workload.network).total

    assert result(problem, STREAMED).time.optimizer_s[0] == pytest.approx(30 * total / 100e9)


def test_devices_of_a_node_share_its_memory_and_a_switch_its_uplink(ideal, llama):
    whole = ideal(llama(), devices=8, batch=8)

    # 8 devices want 10 GB/s of 40 GB/s; two on one uplink have half of it each
    assert link_bytes_per_s(on_host(whole, memory_bytes_per_s=40e9)) == 5e9
    assert link_bytes_per_s(on_host(whole, uplink_devices=2)) == 5e9
    assert link_bytes_per_s(on_host(ideal(llama()), uplink_devices=2)) == 10e9


def test_states_on_disks_are_read_and_written_once_a_step(ideal, llama):
    # two fp32 moments: 8 bytes read at 4 GB/s, written at 2 GB/s
    problem = on_host(ideal(llama()), nvme_read_bytes_per_s=4e9, nvme_write_bytes_per_s=2e9)
    total = network_parameters(problem.workload.network).total
    plan = replace(STREAMED, offload_optimizer=Offload.NVME)

    assert result(problem, plan).time.optimizer_s[0] == pytest.approx(8 * total * (1 / 4e9 + 1 / 2e9))


def test_offloaded_states_leave_one_gathered_layer_on_the_device(ideal, llama):
    problem = on_host(ideal(llama()))
    kinds = result(problem, STREAMED).memory.kinds
    layer = 2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 5632 + 2 * 2048

    assert kinds.weights_bytes[0] == kinds.gradients_bytes[0] == kinds.optimizer_bytes[0] == 0
    assert kinds.gathered_bytes[0] == 10 * layer + 2 * (2 * 32000 * 2048 + 2048)


def test_the_host_has_what_left_the_device_and_its_buffers(ideal, llama):
    # weights, gradients and two moments, 16 bytes; half as much again where buffers are pinned
    problem = on_host(ideal(llama(), devices=8, batch=8), memory_bytes=200e9)
    total = network_parameters(problem.workload.network).total
    memory = result(problem, replace(STREAMED, dp=8, shard=8)).memory

    assert memory.host_bytes[0] == pytest.approx(8 * 3e9 + 16 * total)
    assert memory.host_most_bytes[0] == pytest.approx(8 * 3e9 + 24 * total)


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.6, Verdict.FITS), (1.2, Verdict.RISKY), (0.9, Verdict.DOES_NOT_FIT)]
)
def test_a_host_that_is_too_small_is_a_verdict(ideal, llama, share, verdict):
    total = network_parameters(llama()).total
    found = result(on_host(ideal(llama()), memory_bytes=3e9 + share * 16 * total), STREAMED)

    assert found.memory.host_verdict[0] == verdict
    assert bool(found.reject[0] & Reject.HOST_MEMORY) is (verdict is Verdict.DOES_NOT_FIT)


@pytest.mark.parametrize(
    ("devices", "of_a_device"),
    [
        (8, (2 * 30 + 1 * 10 + 1 * 50) / 4),  # one node has all four stages
        (16, (50 + 30) / 2),  # a node has two stages: the last, and one of the first two
        (32, 50),  # a node has one stage: the last
        (64, 50),
    ],
)
def test_the_node_with_the_stages_that_move_most_decides(ideal, llama, devices, of_a_device):
    problem = ideal(llama(), devices=devices, batch=devices)
    plans = Plans.of(Plan(dp=devices // 4, pp=4, micro_batches=4))
    slots = stages.Slots(
        row=np.zeros(3, np.int64),
        first=np.zeros(1, np.int64),
        counts=np.ones((3, 1)),
        has_embedding=np.zeros(3),
        has_head=np.zeros(3),
        rank=np.array([0.0, 2.0, 3.0]),
        last_rank=np.array([1.0, 2.0, 3.0]),
        alike=np.array([2.0, 1.0, 1.0]),
    )

    moved = node_moved_bytes(problem, plans, slots, np.array([30.0, 10.0, 50.0]))

    assert moved.tolist() == [of_a_device]


def test_a_host_of_which_nobody_knows_the_memory_is_a_risk(ideal, llama):
    assert result(on_host(ideal(llama())), STREAMED).memory.verdict[0] == Verdict.RISKY


def test_a_small_host_is_none_of_the_concern_of_plans_without_offload(ideal, llama):
    assert result(on_host(ideal(llama()), memory_bytes=1e9), Plan()).memory.verdict[0] == Verdict.FITS


def test_checkpoints_go_down_in_forward_and_come_up_in_backward(real, llama):
    problem = on_host(real(llama(layers=16), "trl-fsdp2"), prefetches=True)
    plan = Plan(recompute=Recompute.FULL, offload_activations=Offload.CPU)
    slow = replace(problem, cluster=replace(problem.cluster, host=Host(pcie_bytes_per_s=1e6)))

    # 16 layers, 2 x 1,024 x 2,048 bytes; at 0.8 MB/s nothing hides, two ways
    moved_s = 2 * 16 * 2 * 1024 * 2048 / 0.8e6
    assert result(slow, plan).time.offload_s[0] == pytest.approx(moved_s, rel=0.01)
    assert result(problem, plan).memory.host_bytes[0] == pytest.approx(3e9 + 14 * 2 * 1024 * 2048)


@pytest.mark.parametrize(
    ("plan", "bit"),
    [
        (Plan(dp=8, zero=2, shard=8, offload_params=Offload.CPU), Reject.OFFLOAD),
        (Plan(dp=8, offload_optimizer=Offload.CPU), Reject.OFFLOAD),
        (Plan(dp=8, zero=3, shard=8, offload_optimizer=Offload.CPU), Reject.ENGINE),
        (replace(STREAMED, dp=8, shard=8, offload_params=Offload.NVME), Reject.HOST_LINK),
        (Plan(dp=8, optimizer_step=OptimizerStep.IN_BACKWARD, micro_batches=2), Reject.OPTIMIZER_STEP),
        (Plan(dp=8, zero=1, shard=8, optimizer_step=OptimizerStep.IN_BACKWARD), Reject.OPTIMIZER_STEP),
    ],
)
def test_what_cannot_be_offloaded_is_rejected(real, llama, plan, bit):
    problem = real(llama(), "pytorch", devices=8, batch=8 * plan.micro_batches)

    assert result(problem, plan).reject[0] & bit


def test_nothing_is_offloaded_over_a_bus_that_nobody_knows(real, llama):
    problem = real(llama(), "pytorch", gpu="tpu-v5p")

    assert result(problem, STREAMED).reject[0] & Reject.HOST_LINK


def test_paged_states_leave_the_loss_and_come_back_for_the_step(real, llama):
    kept = real(llama(), "hf-bf16", optimizer=Optimizer())
    paged = real(llama(), "hf-bf16", optimizer=Optimizer(is_paged=True))
    states = result(kept, Plan()).memory.kinds.optimizer_bytes[0]
    one, other = (result(each, Plan()).memory.phases for each in (kept, paged))

    assert one.loss_bytes[0] - other.loss_bytes[0] == pytest.approx(states)
    assert one.step_bytes[0] == other.step_bytes[0]


def test_nodes_say_how_fast_their_hosts_are():
    host = catalog.cluster_for("a100-sxm-80gb", 8).host

    # 31.5 GB/s of PCI Express 4 for two devices; 2 x 8 channels of 25.6 GB/s
    assert (host.pcie_bytes_per_s, host.uplink_devices) == (31.5e9, 2)
    assert host.memory_bytes_per_s == 2 * 8 * 25.6e9
