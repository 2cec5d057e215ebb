"""Does it fit, by phase, on device and host; what goes over links; what one node alone would do."""

from collections.abc import Callable

import pytest

from escala.checking.better import better_plan
from escala.checking.changes import smallest_change
from escala.checking.judging import Judged
from escala.checking.traffic import flows, on_one_node
from escala.model.estimate import estimate
from escala.model.memory import Verdict
from escala.model.plan import Plans

Judge = Callable[..., Judged]


def test_without_offload_the_answer_is_that_of_the_model(judge: Judge) -> None:
    own = judge(model="llama-3.1-8b", zero=3, micro_batch=1, precision="bf16")
    whole = estimate(own.problem, Plans.of(own.plan))

    assert own.needed_bytes == whole.memory.needed_bytes[0]
    assert own.phase_bytes["loss"] == whole.memory.phases.loss_bytes[0]


def test_states_of_a_7b_model_do_not_fit_on_one_device(judge: Judge) -> None:
    # 16 bytes * 6.74e9 = 100 GiB of weights, gradients, and two moments in fp32
    own = judge(model="llama-2-7b", gpus=1, gpu="a100-sxm-80gb", engine="hf-trainer", precision="bf16")

    assert own.verdict is Verdict.DOES_NOT_FIT
    assert own.phase_bytes["step"] > 16 * 6.73e9


def test_offloaded_states_leave_the_device_and_fill_the_host(judge: Judge) -> None:
    here = judge(model="llama-2-7b", engine="deepspeed", zero=3, micro_batch=1, precision="bf16")
    there = judge(
        model="llama-2-7b",
        engine="deepspeed",
        zero=3,
        micro_batch=1,
        precision="bf16",
        offload_optimizer="cpu",
        offload_params="cpu",
    )

    # master and two moments in fp32, gradients in fp32, weights in 16 bit: 12 + 4 + 2 bytes a parameter
    moved = there.host.running_bytes - here.host.running_bytes
    assert moved == pytest.approx(18 * 6.738e9, rel=1e-3)
    assert there.phase_bytes["load"] == there.kind_bytes["weights"] == there.kind_bytes["gradients"] == 0
    assert there.needed_bytes < here.needed_bytes - 12 * 6.738e9 / 8


def test_a_second_copy_of_the_weights_is_held_from_the_start_of_training(judge: Judge) -> None:
    known = {"model": "llama-3.1-8b", "engine": "deepspeed", "zero": 3, "precision": "bf16", "gpus": 16}
    one, two = judge(**known), judge(**known, second_copy=8)

    # 2 bytes * 8.03e9 parameters / 8 ranks = 2.01e9 on each device, in every phase but the loading
    more = {name: two.phase_bytes[name] - held for name, held in one.phase_bytes.items()}
    assert more.pop("load") == 0
    assert list(more.values()) == pytest.approx([2.0076e9] * len(more), rel=1e-3)
    assert two.needed_bytes - one.needed_bytes == pytest.approx(1.03 * 2.0076e9, rel=1e-2)
    assert two.kind_bytes["weights"] - one.kind_bytes["weights"] == pytest.approx(2.0076e9, rel=1e-3)


def test_ranks_that_each_load_the_whole_model_need_as_many_copies(judge: Judge) -> None:
    own, new = (judge(model="llama-2-7b", gpus=8, method=each) for each in ("full", "pretrain"))

    assert new.host.load_bytes is None  # there is nothing to load
    assert own.host.load_bytes is not None
    # 8 ranks * 6.74e9 weights * 2 bytes
    assert own.host.load_bytes - own.estimate.memory.host_bytes[0] == pytest.approx(8 * 6.738e9 * 2, rel=1e-3)


def test_sharded_weights_cross_the_network_between_nodes(judge: Judge) -> None:
    own = judge(model="llama-2-7b", gpus=16, zero=3, micro_batch=1, precision="bf16")

    assert [(each.kind, each.is_between_nodes) for each in flows(own)] == [("sharding", True)]


def test_two_nodes_over_a_slow_network_are_slower_than_one(judge: Judge) -> None:
    slow = on_one_node(judge(model="llama-2-7b", gpus=16, zero=3, network="1 Gb/s"))
    fast = on_one_node(judge(model="llama-2-7b", gpus=16, zero=3))

    assert slow is not None
    assert fast is not None
    assert slow.speedup < 1 < fast.speedup <= fast.ideal == 2
    assert on_one_node(judge(model="llama-2-7b", gpus=8, zero=3)) is None


@pytest.mark.parametrize(
    ("facts", "facts_set"),
    [
        (
            {"micro_batch": 8, "zero": 3, "recompute": "full", "sequence_tokens": 8192},
            {"micro_batch", "accumulation"},
        ),
        ({"micro_batch": 1, "zero": 0, "recompute": "full", "sequence_tokens": 2048}, {"zero"}),
    ],
)
def test_the_smallest_change_is_one_setting(
    judge: Judge, facts: dict[str, object], facts_set: set[str]
) -> None:
    own = judge(model="llama-3.1-8b", gpu="a100-sxm-80gb", precision="bf16", **facts)
    assert own.verdict is Verdict.DOES_NOT_FIT

    change = smallest_change(own)

    assert change is not None
    assert set(change.facts) == facts_set
    assert change.judged.verdict is Verdict.FITS
    assert change.judged.problem.workload.global_batch == own.problem.workload.global_batch


def test_more_devices_are_the_change_where_no_setting_helps(judge: Judge) -> None:
    job = {"model": "llama-3.1-70b", "zero": 3, "micro_batch": 1, "accumulation": 64, "precision": "bf16"}
    own = judge(gpus=8, engine="llm-foundry", **job)  # which offloads nothing

    change = smallest_change(own)

    assert change is not None
    assert change.facts["devices"] == change.judged.plan.devices > 8


def test_the_best_plan_has_nothing_better_beside_it(judge: Judge) -> None:
    own = judge(model="llama-3.1-8b", zero=3, accumulation=8, precision="bf16", recompute="full")
    best = better_plan(own)
    assert best is not None
    assert best.gain > 0.05

    again = better_plan(best.judged)

    assert again is not None
    assert again.is_near
