"""What `escala watch` leaves is read as logs: stamped lines of any tool, progress bars, samples of nodes."""

import io
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from escala.errors import InvalidInput
from escala.measurement.logs.plain import printed
from escala.measurement.logs.progress import Drawn, drawn
from escala.measurement.logs.record import record
from escala.measurement.sampling.sample import (
    SAMPLE_SCHEMA,
    CommandUse,
    ContainerUse,
    GpuUse,
    MachineUse,
    PackageUse,
    Sample,
)

DATA = Path(__file__).parent / "data"
BEGAN_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def stamp(at_s: float) -> str:
    moment = datetime.fromtimestamp(BEGAN_S + at_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamped(path: Path, lines: Sequence[tuple[float, str]]) -> str:
    path.write_text("".join(f"{stamp(at_s)} {line}\n" for at_s, line in lines))
    return str(path)


def gpu(index: int, energy_j: float, power_w: float | None = 500.0) -> GpuUse:
    return GpuUse(
        index=index,
        uuid=f"GPU-{index}abcdefgh-1",
        name="H100",
        busy_share=0.9,
        memory_busy_share=None,
        used_bytes=7e10,
        memory_bytes=8e10,
        power_w=power_w,
        power_cap_w=None,
        energy_j=energy_j,
        sm_clock_hz=None,
        memory_clock_hz=None,
        temperature_celsius=None,
        held_back_by=(),
    )


def sample(at_s: float, node: str = "n1", rank: int | None = None, gpus: Sequence[GpuUse] = ()) -> Sample:
    command = CommandUse(
        processes=1,
        cpu_s=at_s,
        busy_cores=1.0,
        resident_bytes=1e9,
        proportional_bytes=None,
        read_bytes=None,
        written_bytes=None,
    )
    machine = MachineUse(
        cores=8,
        usable_cores=8,
        busy_s=0.0,
        busy_cores=2.0,
        waiting_cores=0.0,
        stolen_cores=0.0,
        context_switches=0,
        memory_bytes=6.4e10,
        used_bytes=1e9,
        swap_used_bytes=0.0,
        disk_read_bytes=None,
        disk_written_bytes=None,
    )
    return Sample(
        schema=SAMPLE_SCHEMA,
        time=stamp(at_s),
        node=node,
        rank=rank,
        elapsed_s=at_s,
        interval_s=1.0 if at_s else 0.0,
        command=command,
        machine=machine,
        interfaces=(),
        container=ContainerUse(used_bytes=None, limit_bytes=None, throttled_s=None),
        gpus=tuple(gpus),
        packages=(PackageUse(name="0", energy_j=10 * at_s),),
    )


def sampled(path: Path, samples: Sequence[Sample]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in samples))
    return str(path)


@pytest.mark.parametrize("name", ["megatron.log", "torchtitan.log", "deepspeed.log"])
def test_stamped_lines_of_a_tool_say_what_its_own_log_says(name: str, tmp_path: Path):
    lines = [(float(i), line) for i, line in enumerate((DATA / name).read_text().splitlines())]

    plain, watched = record([str(DATA / name)]), record([stamped(tmp_path / "output.log", lines)])
    assert watched.step == plain.step
    assert watched.sources[0].numbers == plain.sources[0].numbers
    assert (watched.devices, watched.global_batch) == (plain.devices, plain.global_batch)
    assert watched.began is not None
    assert watched.began.startswith("2026-01-01T00:00:")
    assert watched.began.endswith("Z")


@pytest.mark.parametrize(
    ("line", "bar"),
    [
        (" 30%|███       | 3/10 [00:06<00:14,  2.00s/it]", Drawn("", 0, 3, 10)),
        ("Epoch 4:  20%|██        | 2/10 [00:01<00:04, 2.00it/s, v_num=0]", Drawn("epoch", 4, 2, 10)),
        ("Training:   0%|          | 0/90 [00:00<?, ?it/s]", Drawn("training", 0, 0, 90)),
        ("Loading checkpoint shards:  50%|█████     | 2/4 [00:01<00:01,  1.1it/s]", None),
        ("model.safetensors:  10%|█         | 0.1G/1.0G [00:01<00:09, 100MB/s]", None),
        ("accuracy 30 % of 3/10", None),
        ("0it [00:00, ?it/s]", None),
    ],
)
def test_a_bar_of_steps_is_told_from_other_bars(line: str, bar: Drawn | None):
    assert drawn(line) == bar


def test_the_bar_that_took_longest_is_the_clock_of_the_steps(tmp_path: Path):
    evaluation = [(21.0 + i / 10, f" 50%|█████     | {i}/4 [00:00<00:00]") for i in range(5)]
    training = [(2.0 * i + 3 * (i > 10), f" 10%|█         | {i}/20 [00:00<00:00]") for i in range(21)]
    end = (
        50.0,
        "{'train_runtime': '43', 'train_samples_per_second': '3.72', 'train_steps_per_second': '0.465'}",
    )
    log = stamped(tmp_path / "output.log", [*sorted([*evaluation, *training]), end])

    found = record([log])
    assert found.step is not None
    # every step 2 s, once with an evaluation of 3 s
    assert (found.step.how, round(found.step.median_s, 6), found.last_step) == ("clock", 2.0, 20)
    assert found.samples_per_s is not None
    assert found.samples_per_s.value == 3.72
    assert found.sources[0].tool == "progress bar"


def test_epochs_of_a_bar_go_on_counting_and_the_pause_between_them_is_no_step(tmp_path: Path):
    lines = [
        (100.0 * epoch + i, f"Epoch {epoch}:  10%|█         | {i}/5 [00:00<00:00]")
        for epoch in range(3)
        for i in range(6)
    ]
    nameless = [(at_s, line.partition(":")[2]) for at_s, line in lines]

    for name, given in (("a", lines), ("b", nameless)):
        found = record([stamped(tmp_path / name, given)])
        assert found.step is not None
        assert (found.step.median_s, found.step.high_quartile_s, found.last_step) == (1.0, 1.0, 15)


def test_stamped_lines_without_a_step_are_refused_in_one_line(tmp_path: Path):
    with pytest.raises(InvalidInput, match="has no line with a step"):
        record([stamped(tmp_path / "output.log", [(0.0, "hello")])])


@pytest.mark.parametrize(
    ("line", "words", "step"),
    [
        ("step 38 loss 0.1185", "step#", 38),
        ("Step 38/1000", "step#", 38),
        ("iter 38: loss 0.1, time 5.00ms", "iter#", 38),
        ("iteration 38", "iteration#", 38),
        ("Epoch [2/5], Step [38/600], Loss: 0.2", "epoch#[#/#],#step#[", 38),
        ("{'loss': 0.1, 'global_step': 38}", "{'loss':##,#'global_step':#", 38),
    ],
)
def test_a_step_is_read_in_the_words_of_a_loop(line: str, words: str, step: int):
    assert printed(line) == ((words, ""), step)


@pytest.mark.parametrize(
    "line",
    [
        "max_steps 1000",
        "100 steps",
        "step time 38",
        "step: 38 ms",
        "step 0.38",
        "substep 3",
        "step 3x",
        "step 1,000",
        "stepping 3",
    ],
)
def test_other_numbers_are_no_step(line: str):
    assert printed(line) is None


def test_printed_steps_are_counted_by_the_time_before_them(tmp_path: Path):
    # a line every 10 steps and 20 s: 2 s a step; a checkpoint after each, an evaluation of 4 lines in between
    training = [(20.0 * i, f"step {10 * i} loss {1 / (i + 1):.4f}") for i in range(1, 13)]
    saved = [(at_s + 1, f"saved at {line.partition(' loss')[0]}") for at_s, line in training]
    tested = [(at_s + 2 + i, f"eval step {i}") for at_s, _ in training for i in range(4)]
    again = [(at_s + 3, f"{line.partition(' loss')[0]} done") for at_s, line in training]

    found = record([stamped(tmp_path / "output.log", sorted([*training, *saved, *tested, *again]))])
    assert found.step is not None
    assert (found.step.how, found.step.median_s, found.last_step) == ("clock", 2.0, 120)
    # 11 differences of 12 lines, 1 of them warm-up
    assert (found.step.samples, found.step.high_quartile_s) == (10, 2.0)
    assert found.sources[0].tool == "printed steps"


def test_printed_steps_have_the_rank_before_them(tmp_path: Path):
    lines = [(i * (1.0 + rank), f"[rank{rank}]: step {i}") for i in range(9) for rank in range(2)]

    found = record([stamped(tmp_path / "output.log", lines)])
    assert {each.rank: each.median_s for each in found.ranks} == {"rank 0": 1.0, "rank 1": 2.0}


@pytest.mark.parametrize("steps", [(7,), (7, 7, 7), (3, 2, 1)])
def test_a_step_number_that_does_not_grow_is_no_clock(steps: Sequence[int], tmp_path: Path):
    lines = [(float(i), f"step {step}") for i, step in enumerate(steps)]

    with pytest.raises(InvalidInput, match=r"such as 'step 38'.* print one at each step"):
        record([stamped(tmp_path / "output.log", lines)])


def test_a_watch_without_a_step_says_what_to_print(tmp_path: Path):
    stamped(tmp_path / "output.log", [(0.0, "hello")])
    sampled(tmp_path / "samples.jsonl", [sample(0.0), sample(1.0)])

    (note,) = record([str(tmp_path)]).notes
    assert "no step was found in" in note
    assert "print one at each step" in note


def test_power_of_samples_is_that_of_the_run_alone(tmp_path: Path):
    step = " iteration {i:8d}/ 9 | elapsed time per iteration (ms): 1000.0 | global batch size: 8 |"
    log = stamped(tmp_path / "output.log", [(10.0 + i, step.format(i=i)) for i in range(1, 8)])
    gpus = [gpu(0, 500.0 * at_s, 500.0 if 11 <= at_s <= 17 else 100.0) for at_s in range(30)]
    samples = sampled(
        tmp_path / "samples.jsonl", [sample(float(i), gpus=[each]) for i, each in enumerate(gpus)]
    )

    power = record([log, samples]).power
    assert power is not None
    assert (power.is_run, power.mean_w, power.duration_s) == (True, 500.0, 6.0)


def test_nodes_are_merged_and_their_counters_added(tmp_path: Path):
    names = [
        sampled(
            tmp_path / node / "samples.jsonl",
            [sample(float(i), node, gpus=[gpu(0, 400.0 * i)]) for i in range(6)],
        )
        for node in ("n1", "n2")
    ]

    found = record([str(Path(name).parent) for name in names])
    assert found.power is not None
    assert (found.power.devices, found.power.mean_w) == (2, 1000.0)
    # counters: 400 J and 10 J a second for 5 s on each node
    assert [(each.scope, each.devices, each.energy_j) for each in found.metered] == [
        *(("devices", 1, 2000.0), ("processor packages", 0, 50.0)) * 2
    ]
    assert [(each.node, each.cpu_s) for each in found.usage] == [("n1", 5.0), ("n2", 5.0)]
    assert [(each.counter, each.peak_bytes, each.lane) for each in found.memory] == [
        ("device", 7e10, "n1 gpu 0 0abcdefg")
    ]


def test_a_gpu_that_two_ranks_of_a_node_sampled_counts_once(tmp_path: Path):
    names = [
        sampled(
            tmp_path / str(rank), [sample(float(i), rank=rank, gpus=[gpu(0, 400.0 * i)]) for i in range(6)]
        )
        for rank in range(2)
    ]

    found = record(names)
    assert found.power is not None
    assert (found.power.devices, found.power.mean_w) == (1, 500.0)
    assert [each.energy_j for each in found.metered] == [2000.0, 50.0]
    assert len(found.usage) == 2
    assert found.notes == ("1 GPUs that two ranks sampled at once count once",)


def test_lines_that_are_no_samples_are_counted(tmp_path: Path):
    samples = sampled(tmp_path / "samples.jsonl", [sample(0.0), sample(1.0)])
    with Path(samples).open("ab") as file:
        file.write(b'{"schema": "escala/sample@1"}\n')
        file.write(msgspec.json.encode(replace(sample(2.0), schema="escala/sample@9")) + b"\n")
        file.write(b'{"schema": "escala/sam')

    (source,) = record([samples]).sources
    assert source.left_out == {
        "lines that are no escala/sample@1": 2,
        "a last line that is cut short": 1,
    }
    assert (source.tool, source.numbers) == ("escala watch", 2)


@pytest.mark.optional
@pytest.mark.parametrize(("description", "name", "epoch"), [(None, "", 0), ("Epoch 3", "epoch", 3)])
def test_bars_that_tqdm_itself_draws_are_read(description: str | None, name: str, epoch: int):
    tqdm = pytest.importorskip("tqdm").tqdm
    drawing = io.StringIO()

    for _ in tqdm(range(5), desc=description, file=drawing, mininterval=0, ncols=80, postfix={"v_num": 0}):
        pass
    states = [drawn(each) for each in drawing.getvalue().split("\r") if each.strip()]
    assert states[-1] == Drawn(name, epoch, 5, 5)
    assert {each.done for each in states if each} == {0, 1, 2, 3, 4, 5}


@pytest.mark.optional
def test_the_last_line_that_the_trainer_itself_prints_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    callback = pytest.importorskip("transformers.trainer_callback")
    metrics = pytest.importorskip("transformers.trainer_utils").speed_metrics(
        "train", time.time() - 8.0, num_samples=64, num_steps=16
    )

    state = callback.TrainerState(is_local_process_zero=True)
    callback.PrinterCallback().on_log(None, state, None, logs=metrics)
    found = record([stamped(tmp_path / "output.log", [(9.0, capsys.readouterr().out.strip())])])
    # 64 samples and 16 steps in 8 s
    assert found.samples_per_s is not None
    assert found.samples_per_s.value == pytest.approx(8.0, abs=0.02)
    assert found.step is not None
    assert found.step.how == "mean of the run"
    assert found.step.median_s == pytest.approx(0.5, abs=0.002)
