"""What a step does and waits for, on traces so small that every microsecond can be counted by hand."""

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from types import ModuleType

import pytest

from escala.catalog.accelerators import accelerator
from escala.errors import InvalidInput
from escala.measurement.profile.analyse import profile
from escala.measurement.profile.read import Trace, read_traces
from escala.measurement.profile.record import Phases, Profile, Waits

Read = Callable[..., tuple[Trace, ...]]
US = 1e-6


def on_a_processor(kineto: ModuleType, start: float = 0, late: float = 0) -> list:
    """One step of 1000 µs; `late` is how much later its message begins."""
    return [
        kineto.mark("ProfilerStep#4", start, 1000),
        kineto.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, 100),
        kineto.op("aten::stack", start + 10, 80),
        kineto.product(start + 100, 200),
        kineto.backward(start + 300, 200),
        kineto.product(start + 310, 180),
        kineto.gloo(start + 450 + late, 200 - late),
        kineto.mark("Optimizer.step#AdamW.step", start + 700, 100),
        kineto.op("aten::addcmul_", start + 700, 90),
    ]


def on_a_device(kineto: ModuleType) -> list:
    """One step of 1000 µs: 60 of data, 100 of launching, products, other work, and a message half hidden."""
    return [
        kineto.mark("ProfilerStep#4", 0, 1000),
        kineto.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 60),
        kineto.span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", kineto.STREAM, 10, 40, bytes=4096),
        kineto.product(100, 10, External_id=11),
        *kineto.launched("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 105, 200, 300, 11),
        kineto.op("aten::add", 120, 10, External_id=12),
        *kineto.launched("void at::native::vectorized_elementwise_kernel<4>", 125, 500, 100, 12),
        kineto.backward(150, 50),
        kineto.product(155, 10, External_id=13),
        *kineto.launched("nvjet_tst_128x256_64x4_1x2_h_bz_NNT", 160, 650, 100, 13),
        kineto.op("record_param_comms", 170, 10, External_id=14),
        *kineto.nccl(175, 700, 150, 14, elements=1000),
        kineto.mark("Optimizer.step#AdamW.step", 210, 50),
        kineto.op("aten::_fused_adamw_", 220, 8, External_id=15),
        *kineto.launched("void at::native::multi_tensor_apply_kernel", 222, 850, 50, 15),
    ]


def in_us(parts: Phases | Waits) -> list[float]:
    return [seconds / US for seconds in astuple(parts)]


def test_phases_of_a_processor_by_hand(kineto: ModuleType, read: Read):
    found = profile(read(on_a_processor(kineto))).critical

    # data 0 to 100, forward 100 to 300, backward to 490, message 490 to 650, optimizer 700 to 790
    assert in_us(found.phases) == pytest.approx([100, 200, 190, 160, 90, 260], rel=1e-9)


def test_waits_of_a_processor_by_hand(kineto: ModuleType, read: Read):
    found = profile(read(on_a_processor(kineto))).critical

    # products 200 + 180, addcmul 90, the call of the second product 10, message 160, data 100
    assert in_us(found.waits) == pytest.approx([380, 90, 10, 160, 100, 260], rel=1e-9)


def test_a_message_is_hidden_behind_work(kineto: ModuleType, read: Read):
    found = profile(read(on_a_processor(kineto))).critical

    # 450 to 650, backward until 490
    assert (found.message_s / US, found.hidden_s / US) == pytest.approx((200, 40), rel=1e-9)


def test_phases_of_a_device_by_hand(kineto: ModuleType, read: Read):
    found = profile(read(on_a_device(kineto), device="NVIDIA Unknown"))

    # kernels 200 to 600, 650 to 750, 850 to 900; the message 700 to 850 is alone from 750 on
    assert found.has_device
    assert in_us(found.critical.phases) == pytest.approx([60, 400, 100, 100, 50, 290], rel=1e-9)


def test_waits_of_a_device_by_hand(kineto: ModuleType, read: Read):
    found = profile(read(on_a_device(kineto), device="NVIDIA Unknown")).critical

    # products 300 + 100, other kernels 100 + 50, calls from 100 until the first kernel at 200
    assert in_us(found.waits) == pytest.approx([400, 150, 100, 100, 60, 190], rel=1e-9)


def test_traffic_of_nccl_by_hand(kineto: ModuleType, read: Read):
    (found,) = profile(read(on_a_device(kineto))).critical.traffic

    # 1000 numbers of 2 bytes; 2 * 1/2 * 2000 bytes in 150 µs
    assert (found.operation, found.group, found.ranks, found.messages) == ("all_reduce", "default_pg", 2, 1)
    assert found.payload_bytes == 2000
    assert found.bus_bytes_per_s == pytest.approx(2000 / (150 * US), rel=1e-9)
    assert found.exposed_s / US == pytest.approx(100, rel=1e-9)


def test_traffic_of_gloo_takes_its_group_from_the_run(kineto: ModuleType, read: Read):
    both = profile(read(on_a_processor(kineto), on_a_processor(kineto)))

    (found,) = both.critical.traffic

    # 1000 numbers of 4 bytes
    assert (found.group, found.ranks, found.payload_bytes) == ("default_pg", 2, 4000)


def test_exposed_time_of_collectives_adds_up(kineto: ModuleType, read: Read):
    # an all-gather of 600 to 900 beside the all-reduce of 450 to 650, of which 490 to 650 is exposed
    gather = {**kineto.gloo(600, 90), "name": "gloo:all_gather"}

    found = profile(read([*on_a_processor(kineto), gather])).critical

    assert [each.exposed_s / US for each in found.traffic] == pytest.approx([160, 40], rel=1e-9)
    assert found.phases.communication_s / US == pytest.approx(200, rel=1e-9)


def test_kernels_belong_to_the_operation_that_called_them_whatever_their_id(kineto: ModuleType, read: Read):
    # older traces give a kernel its own number as "External id", which may be that of another operation
    events = [
        kineto.mark("ProfilerStep#1", 0, 1000),
        kineto.op("aten::copy_", 0, 10, External_id=7),
        kineto.product(100, 100, External_id=3),
        *kineto.launched("Kernel", 150, 200, 500, 7),
    ]

    assert profile(read(events, device="NVIDIA Unknown")).critical.waits.compute_s / US == pytest.approx(500)


def test_flop_count_products_once(kineto: ModuleType, read: Read):
    found = profile(read(on_a_processor(kineto)))

    # two products of 2e6 FLOP in 1000 µs
    assert found.critical.flop == 4e6
    assert found.speed is not None
    assert found.speed.flop_per_s == pytest.approx(4e9, rel=1e-9)
    assert found.speed.hfu is None


def test_utilisation_is_against_the_peak_of_the_named_device_in_the_format_that_ran(
    kineto: ModuleType, read: Read
):
    found = profile(read(on_a_device(kineto), device="NVIDIA H100 80GB HBM3")).speed

    assert found is not None
    assert found.number_format == "fp32"
    assert found.peak_flop_per_s == accelerator("h100-sxm").fp32_flop_per_s
    assert found.hfu == pytest.approx(4e6 / (1000 * US) / found.peak_flop_per_s, rel=1e-9)
    assert found.mfu is None


def test_thin_products_are_limited_by_memory(kineto: ModuleType, read: Read):
    # 2e6 FLOP over 3 * 100 * 100 * 4 bytes are 17 a byte; an H100 needs some 26 in fp32
    found = profile(read(on_a_device(kineto)), device=accelerator("h100-sxm")).critical

    assert found.waits.compute_s == 0
    assert found.waits.memory_s / US == pytest.approx(550, rel=1e-9)


def test_what_thin_is_goes_by_the_format_that_ran(kineto: ModuleType, read: Read):
    # at 20 TFLOP/s in fp32 it needs some 8 a byte, whatever its 16-bit units could do
    slow = replace(accelerator("h100-sxm"), fp32_flop_per_s=20e12)
    found = profile(read(on_a_device(kineto)), device=slow).critical

    assert found.waits.compute_s > 0
    assert found.waits.memory_s / US < 550


def test_a_late_rank_is_a_straggler_whatever_its_clock_says(kineto: ModuleType, read: Read):
    # rank 1 enters its message 150 µs later, and its clock is 5 s ahead
    first, second = on_a_processor(kineto), on_a_processor(kineto, start=5e6, late=150)

    prompt, late = profile(read(first, second)).arrivals

    assert prompt.waits_s / US == pytest.approx(150, rel=1e-6)
    assert late.late_s / US == pytest.approx(150, rel=1e-6)
    assert (prompt.is_straggler, late.is_straggler, late.last_times) == (False, True, 1)


def test_lateness_by_chance_is_no_straggler(kineto: ModuleType, read: Read):
    # each rank is 150 µs late at one of two messages
    first = [*on_a_processor(kineto), kineto.gloo(820, 160)]
    second = [*on_a_processor(kineto, late=150), kineto.gloo(820, 160)]
    first[-1]["ts"], first[-1]["dur"] = 970, 10

    found = profile(read(first, second)).arrivals

    assert [each.late_s / US for each in found] == pytest.approx([0, 0], abs=1e-6)
    assert [each.last_times for each in found] == [1, 1]
    assert not any(each.is_straggler for each in found)


def test_a_hook_that_waits_inside_of_backward_is_no_work(kineto: ModuleType, read: Read):
    events = [
        kineto.mark("ProfilerStep#1", 0, 1000),
        kineto.backward(0, 1000),
        kineto.product(0, 200),
        kineto.gloo(200, 800),
    ]

    assert profile(read(events)).critical.phases.communication_s / US == pytest.approx(800, rel=1e-9)


def test_forward_and_backward_inside_of_an_optimizer_step_stay_what_they_are(kineto: ModuleType, read: Read):
    events = [
        kineto.mark("ProfilerStep#1", 0, 600),
        kineto.mark("Optimizer.step#Adam.step", 0, 600),
        kineto.product(0, 200),
        kineto.backward(200, 300),
        kineto.product(200, 300),
        kineto.op("aten::_fused_adam_", 500, 100),
    ]

    assert in_us(profile(read(events)).critical.phases) == pytest.approx([0, 200, 300, 0, 100, 0], abs=1e-6)


def test_groups_of_one_size_tell_the_ranks_of_messages_that_do_not(kineto: ModuleType, tmp_path: Path):
    given = kineto.document(on_a_processor(kineto), rank=0)
    group = given["distributedInfo"]["pg_config"][0]
    given["distributedInfo"]["pg_config"] += [{**group, "pg_name": "1", "pg_desc": "mesh_tp"}]
    (tmp_path / "a.json").write_text(json.dumps(given))

    (found,) = profile(read_traces([str(tmp_path / "a.json")])).critical.traffic

    assert (found.group, found.ranks) == (None, 2)


def test_the_rank_that_waits_least_decides(kineto: ModuleType, read: Read):
    found = profile(read(on_a_processor(kineto), on_a_processor(kineto, late=150)))

    assert found.critical_rank == 1


def test_a_straggler_is_the_first_thing_to_look_at(kineto: ModuleType, read: Read):
    changes = profile(read(on_a_processor(kineto), on_a_processor(kineto, late=150))).verdict.changes

    assert "rank 1" in next(each.what for each in changes if "rank" in each.what)


def test_ranks_with_different_collectives_are_not_matched(kineto: ModuleType, read: Read):
    found = profile(read(on_a_processor(kineto), [*on_a_processor(kineto), kineto.gloo(900, 10)]))

    assert found.arrivals == ()
    assert any("do not have the same collectives" in each for each in found.unsaid)


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        (lambda k: [k.product(0, 800)], "compute"),
        (lambda k: [k.op("aten::copy_", 0, 800)], "memory"),
        (lambda k: [k.op("aten::add", at, 5) for at in range(0, 900, 10)], "launch"),
        (lambda k: [k.gloo(100, 800), k.product(0, 100)], "communication"),
        (lambda k: [k.mark("enumerate(DataLoader)#It.__next__", 0, 800), k.product(800, 200)], "input"),
        (lambda k: [k.product(0, 100)], "idle"),
        (lambda k: [k.product(0, 400), k.op("aten::copy_", 400, 400)], "mixed"),
    ],
)
def test_what_takes_half_of_the_step_is_the_verdict(
    kineto: ModuleType, read: Read, events: Callable[[ModuleType], list], kind: str
):
    found = profile(read([kineto.mark("ProfilerStep#1", 0, 1000), *events(kineto)])).verdict

    assert found.kind == kind


def test_what_a_change_could_buy_is_what_it_removes(kineto: ModuleType, read: Read):
    changes = profile(read(on_a_processor(kineto))).verdict.changes

    # idle 260, exposed 160, data 100, other operations 90; launching, 10, is not worth a word
    assert [each.at_most_share for each in changes] == pytest.approx([0.26, 0.16, 0.1, 0.09], rel=1e-9)


def steps_of(traces: tuple[Trace, ...]) -> tuple[str, list[float]]:
    found = profile(traces).steps
    return found.how, [round(each / US) for each in found.each_s]


def test_steps_are_the_marks_of_the_profiler(kineto: ModuleType, read: Read):
    events = [kineto.mark("ProfilerStep#1", 0, 300), kineto.mark("ProfilerStep#2", 300, 200)]

    assert steps_of(read([*events, kineto.op("aten::add", 0, 600)])) == ("ProfilerStep# marks", [300, 200])


def test_steps_are_else_the_marks_of_the_loop(kineto: ModuleType, read: Read):
    events = [kineto.mark(f"train_step {at}", at, 90) for at in (100, 200, 300)]

    assert steps_of(read([*events, kineto.op("aten::add", 0, 600)])) == (
        "marks of the training loop",
        [100, 100, 90],
    )


def test_steps_are_else_between_ends_of_optimizer_steps(kineto: ModuleType, read: Read):
    events = [kineto.mark("Optimizer.step#SGD.step", at, 50) for at in (100, 300, 450)]

    assert steps_of(read([*events, kineto.op("aten::add", 0, 600)])) == (
        "ends of optimizer steps",
        [200, 150],
    )


def test_else_the_whole_is_one_step(kineto: ModuleType, read: Read):
    how, each = steps_of(read([kineto.op("aten::add", 0, 600)]))

    assert (how.partition(":")[0], each) == ("the whole trace as one step", [600])


def test_the_last_step_lasts_until_its_kernels_end(kineto: ModuleType, read: Read):
    events = [kineto.mark("ProfilerStep#1", 0, 100), *kineto.launched("gemm", 50, 200, 300, 7)]

    assert steps_of(read(events))[1] == [500]


def test_seconds_are_those_of_one_step(kineto: ModuleType, read: Read):
    one = on_a_processor(kineto)
    two = [*one, *on_a_processor(kineto, start=1000)]
    two[9]["name"] = "ProfilerStep#5"

    assert in_us(profile(read(two)).critical.phases) == pytest.approx([100, 200, 190, 160, 90, 260], rel=1e-9)


def test_clipping_between_backward_and_step_is_the_optimizer(kineto: ModuleType, read: Read):
    events = [*on_a_processor(kineto), kineto.op("aten::_foreach_norm", 620, 60)]

    # 620 to 680, the call of the next 20, 700 to 790
    assert profile(read(events)).critical.phases.optimizer_s / US == pytest.approx(170, rel=1e-9)


def test_own_marks_tell_the_phases(kineto: ModuleType, read: Read):
    events = [
        kineto.mark("ProfilerStep#1", 0, 100),
        kineto.mark("load_data", 0, 10),
        kineto.mark("## forward", 10, 30),
        kineto.mark("## backward ##", 40, 40),
        kineto.mark("optimizer_step", 80, 20),
        kineto.product(0, 100),
    ]

    assert in_us(profile(read(events)).critical.phases) == pytest.approx([10, 30, 40, 0, 20, 0], abs=1e-6)


def test_parts_always_add_up_to_the_step(kineto: ModuleType, read: Read):
    for events in (on_a_processor(kineto), on_a_device(kineto)):
        found = profile(read(events)).critical

        assert sum(astuple(found.phases)) == pytest.approx(found.step_s, rel=1e-9)
        assert sum(astuple(found.waits)) == pytest.approx(found.step_s, rel=1e-9)


def test_traces_of_different_steps_are_refused(kineto: ModuleType, read: Read):
    other = on_a_processor(kineto)
    other[0]["name"] = "ProfilerStep#9"

    with pytest.raises(InvalidInput, match=r"holds steps 4 to 4 and .* steps 9 to 9"):
        profile(read(on_a_processor(kineto), other))


def told(given: Profile) -> str:
    return " ".join(given.unsaid)


def test_what_is_not_recorded_is_said(kineto: ModuleType, read: Read):
    found = told(profile(read([kineto.mark("ProfilerStep#1", 0, 9), kineto.op("aten::mm", 0, 5)])))

    assert "record_shapes=True" in found
    assert "profile_memory=True" in found


def test_missing_ranks_are_said(kineto: ModuleType, tmp_path: Path):
    path = kineto.write(tmp_path / "a.json", on_a_processor(kineto), rank=0, ranks=8)

    assert "1 of 8 ranks read" in told(profile(read_traces([str(path)])))
