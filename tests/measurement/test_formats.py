"""Each format gives the numbers that stand in its file, by hand arithmetic on the samples of data/."""

from pathlib import Path

import numpy as np
import pytest

from escala.measurement.logs.gather import read_file
from escala.measurement.logs.record import record
from escala.measurement.logs.samples import What
from escala.measurement.runrecord import RunRecord
from escala.units import GIB, KWH_J, MIB

DATA = Path(__file__).parent / "data"


def run(*names: str, warmup: int | None = None) -> RunRecord:
    return record([str(DATA / name) for name in names], warmup)


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("trainer_state.json", "HF Trainer"),
        ("megatron.log", "Megatron-LM"),
        ("torchtitan.log", "torchtitan"),
        ("torchtitan.tfevents", "TensorBoard"),
        ("deepspeed.log", "DeepSpeed"),
        ("deepspeed-rate.log", "DeepSpeed"),
        ("lightning-metrics.csv", "Lightning"),
        ("lightning.tfevents", "TensorBoard"),
        ("mlruns/0/run/metrics/iteration-time", "MLflow"),
        ("mlflow-runs.csv", "MLflow table"),
        ("wandb-history.csv", "W&B"),
        ("wandb-history.jsonl", "W&B"),
        ("wandb-chart.csv", "W&B chart"),
        ("wandb-summary.json", "W&B summary"),
        ("nvidia-smi.csv", "nvidia-smi"),
        ("nvidia-smi-nounits.csv", "nvidia-smi"),
        ("dmon.txt", "nvidia-smi dmon"),
        ("dmon-time.txt", "nvidia-smi dmon"),
        ("dcgmi.txt", "DCGM"),
        ("emissions.csv", "CodeCarbon"),
        ("zeus.csv", "Zeus"),
        ("zeus.jsonl", "Zeus"),
    ],
)
def test_a_format_is_known_by_content_whatever_the_name(name: str, tool: str, tmp_path: Path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    copy = folder / "iteration-time"  # the name matters to MLflow alone, whose metrics have no other
    copy.write_bytes((DATA / name).read_bytes())

    assert read_file(copy).tool == tool


def test_megatron_prints_means_of_ten_iterations_of_which_the_first_is_warm_up():
    found = run("megatron.log")

    # the ten after the first, sorted: 3998, 3999.5, 4000, 4000.5, 4001, 4002, 4002.5, 4003, 4004, 4010.5 ms
    assert found.step is not None
    assert found.step.how == "logged"
    assert found.step.median_s == pytest.approx((4.001 + 4.002) / 2, rel=1e-12)
    assert found.step.low_quartile_s == pytest.approx(4.000 + 0.25 * 0.0005, rel=1e-12)  # place 2.25
    assert found.step.high_quartile_s == pytest.approx(4.0025 + 0.75 * 0.0005, rel=1e-12)  # place 6.75
    assert (found.step.samples, found.step.warmup_samples, found.last_step) == (10, 1, 110)
    assert (found.devices, found.global_batch, found.sequence_tokens) == (8, 128, 4096)
    assert found.tokens_per_s is not None
    assert found.tokens_per_s.value == pytest.approx(128 * 4096 / 4.0015, rel=1e-12)
    assert found.tokens_per_s.origin == "derived"
    assert {peak.counter: peak.peak_bytes for peak in found.memory} == {
        "allocated": 51200 * MIB,
        "reserved": 61440 * MIB,
    }
    assert found.unsaid == ("power or energy",)


def test_megatron_prints_power_with_log_energy(tmp_path: Path):
    line = " iteration 1/ 9 | elapsed time per iteration (ms): 2000.0 | power per GPU (W/GPU): 647.8 |\n"
    (tmp_path / "log").write_text(line)

    drawn = record([str(tmp_path / "log")]).power
    assert drawn is not None
    assert (drawn.mean_w, drawn.devices, drawn.energy_j) == (647.8, 1, None)


def test_torchtitan_has_two_ranks_in_one_stream_and_the_slower_counts():
    found = run("torchtitan.log")

    assert found.step is not None
    assert found.step.how == "clock"
    assert found.step.median_s == pytest.approx(2.2, abs=1e-6)  # its clock has milliseconds, near 2e9 s
    assert [(each.rank, each.is_straggler) for each in found.ranks] == [("rank 1", True), ("rank 0", False)]
    assert found.tokens_per_s_per_device is not None
    assert found.tokens_per_s_per_device.value == 7447.0  # with its separator: 7,447
    assert found.mfu is not None
    assert found.mfu.value == pytest.approx(0.0037)
    assert (found.devices, found.global_batch, found.sequence_tokens) == (2, 16, 2048)
    assert found.memory[0].peak_bytes == 1.25 * GIB


def test_deepspeed_steps_are_the_sum_of_forward_backward_and_step():
    series = read_file(DATA / "deepspeed.log").of(What.STEP_S)["rank 0"]

    assert len(series) == 10  # of 51 lines; lines of micro-steps do not count
    assert series.values[0] == pytest.approx((52.47 + 150.12 + 160.43) / 1000, rel=1e-12)
    assert series.values[-1] == pytest.approx((0.34 + 5.58 + 1.28) / 1000, rel=1e-12)


def test_deepspeed_without_breakdown_has_its_clock_and_its_rate():
    found = run("deepspeed-rate.log")

    assert found.step is not None
    assert found.step.median_s == pytest.approx(8 / 10, abs=1e-6)  # ten steps in eight seconds
    assert found.samples_per_s is not None
    assert found.samples_per_s.value == 84.5  # the median of 83.5, 84.5 and 85.5, after warm-up
    assert found.memory[0].peak_bytes == 38.5 * GIB


def test_the_trainer_of_hugging_face_has_a_clock_where_it_counts_tokens():
    found = run("trainer_state.json")

    # train_runtime at steps 5, 10, 15 and 20; the first difference is warm-up
    assert found.step is not None
    assert (found.step.how, found.step.samples, found.last_step) == ("clock", 2, 20)
    assert found.step.median_s == pytest.approx((8.3607 - 5.792) / 2 / 5, rel=1e-12)
    assert found.samples_per_s is not None
    assert found.samples_per_s.value == 18.948
    # 2,560 tokens from entry to entry
    rates = (2560 / (8.3088 - 5.792), 2560 / (8.3607 - 8.3088))
    assert found.tokens_per_s is not None
    assert found.tokens_per_s.value == pytest.approx(sum(rates) / 2, rel=1e-9)


def test_the_trainer_of_hugging_face_prints_a_mean_alone_elsewhere(tmp_path: Path):
    end = '{"step": 20, "train_runtime": 8.444, "train_samples_per_second": 18.948}'
    (tmp_path / "x").write_text('{"log_history": [{"step": 5, "loss": 5.5}, ' + end + "]}")

    found = record([str(tmp_path / "x")]).step
    assert found is not None
    assert (found.how, found.samples) == ("mean of the run", 1)
    assert found.median_s == pytest.approx(8.444 / 20, rel=1e-12)


def test_lightning_has_the_clock_of_its_throughput_monitor():
    found = run("lightning-metrics.csv")

    # train/time at steps 9 to 39; the first difference is warm-up
    seconds = [
        0.04126013299,
        0.05347772099,
        0.06476423899,
        0.07617937899,
        0.0877806669,
        0.09950423,
        0.110806962,
    ]
    per_step = np.diff(seconds) / 5
    assert found.step is not None
    assert found.step.how == "clock"
    assert found.step.median_s == pytest.approx(float(np.median(per_step)), rel=1e-6)
    assert found.tokens_per_s_per_device is not None
    assert found.tokens_per_s_per_device.value == pytest.approx(29591.2006462185, rel=1e-12)


def test_tensorboard_and_csv_of_one_run_agree():
    table, events = run("lightning-metrics.csv"), run("lightning.tfevents")

    assert events.flop_per_s_per_device is not None
    assert table.flop_per_s_per_device is not None
    # scalars are float32
    assert events.flop_per_s_per_device.value == pytest.approx(table.flop_per_s_per_device.value, rel=1e-6)


def test_tags_of_torchtitan_in_an_event_file():
    found = run("torchtitan.tfevents")

    assert found.step is not None
    assert found.step.how == "logged"
    assert found.step.median_s == pytest.approx(1.5 + 0.01 * 7, rel=1e-6)  # steps 2 to 12: the seventh
    assert found.mfu is not None
    assert found.mfu.value == pytest.approx(0.307, rel=1e-6)
    assert [peak.peak_bytes for peak in found.memory] == [50.5 * GIB, 60.25 * GIB]


def test_metrics_of_mlflow_are_one_run():
    found = run("mlruns")

    assert found.step is not None
    assert found.step.median_s == pytest.approx(0.056, rel=1e-12)  # 0.052 to 0.060
    assert [each.tool for each in found.sources] == ["MLflow"]
    assert found.power is not None
    assert found.power.is_run


def test_the_table_of_mlflow_has_last_values():
    found = run("mlflow-runs.csv")

    assert found.step is not None
    assert found.step.median_s == pytest.approx(0.06)
    assert found.power is not None
    assert (found.power.mean_w, found.power.energy_j) == (310.0, None)


@pytest.mark.parametrize("name", ["wandb-history.csv", "wandb-history.jsonl", "wandb-summary.json"])
def test_wandb_has_a_clock(name: str):
    found = run(name)

    assert found.step is not None
    assert found.step.median_s == 1.5


def test_a_chart_of_wandb_has_its_metric_once():
    found = run("wandb-chart.csv").step

    assert found is not None
    assert (found.how, found.median_s, found.samples) == ("logged", 1.75, 3)


def test_power_of_nvidia_smi_is_integrated_between_warm_up_and_the_last_step():
    found = run("megatron.log", "nvidia-smi.csv").power

    # warm-up ends at 23:42:38, the last step at 23:49:18: samples at 23:42:40 to 23:49:00, 380 s apart
    assert found is not None
    assert found.is_run
    watts = sum(600.0 + 10 * gpu for gpu in range(8))
    assert found.mean_w == pytest.approx(watts, rel=1e-12)
    assert found.duration_s == pytest.approx(380.0)
    assert found.energy_j == pytest.approx(watts * 380.0)
    assert (found.devices, found.samples) == (8, 8 * 20)


def test_power_alone_is_integrated_over_all_samples():
    found = run("nvidia-smi-nounits.csv")

    # 100 W, 300 W a second later, [N/A], 500 W two seconds later
    assert found.power is not None
    assert found.power.energy_j == pytest.approx((100 + 300) / 2 * 1 + (300 + 500) / 2 * 2)
    assert not found.power.is_run
    assert list(found.sources[0].left_out) == ["no column index or uuid: all rows are taken as one device"]


def test_dmon_may_begin_with_an_empty_line(tmp_path):
    log = tmp_path / "dmon.txt"
    log.write_text("\n" + (DATA / "dmon.txt").read_text())

    assert record([str(log)]).power == run("dmon.txt").power


def test_dmon_with_a_time_goes_on_after_midnight():
    found = run("dmon-time.txt").power

    assert found is not None
    assert found.energy_j == pytest.approx(150 * 1 + 300 * 2)


def test_power_without_a_time_has_a_mean_and_no_energy():
    found = run("dmon.txt").power

    assert found is not None
    assert found.mean_w == (70 + 270) / 2 + (68 + 272) / 2
    assert (found.energy_j, found.duration_s) == (None, None)


def test_dcgm_prints_its_header_again():
    found = run("dcgmi.txt")

    assert found.power is not None
    assert found.power.mean_w == pytest.approx((410.5 + 430.5 + 420.5) / 3 + (389.5 + 409.5 + 399.5) / 3)
    assert found.memory[0].peak_bytes == 40960 * MIB
    assert found.sources[0].left_out == {}


def test_codecarbon_counts_the_machine():
    (found,) = run("emissions.csv").metered

    assert (found.scope, found.tool) == ("machine", "CodeCarbon")
    assert found.energy_j == pytest.approx(3.888941269018008e-05 * KWH_J, rel=1e-12)
    assert found.duration_s == pytest.approx(5.010311280000678)


@pytest.mark.parametrize("name", ["zeus.csv", "zeus.jsonl"])
def test_windows_of_zeus_add_up(name: str):
    (found,) = run(name).metered

    assert (found.energy_j, found.duration_s, found.devices) == (600 + 620 + 750 + 770, 4.5, 2)
