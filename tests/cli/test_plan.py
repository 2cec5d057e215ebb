import json
import os
from pathlib import Path

import msgspec
import pytest

from escala.report.answer import Answer
from escala.units import digits

MINIMUM = {
    "workload",
    "cluster",
    "considered",
    "feasible",
    "search_s",
    "rejected",
    "plans",
    "recommended",
    "families",
    "assumptions",
}
PLAN_MINIMUM = {
    "plan",
    "step_s",
    "tokens_per_s_per_device",
    "mfu",
    "hfu",
    "memory_bytes",
    "host_memory_bytes",
    "terms_s",
    "energy_j_per_step",
    "cost",
    "co2e_kg",
    "simplicity_rank",
    "verdict",
    "why",
}


def test_json_is_one_document_of_the_schema(run, eight):
    result = run("plan", *eight, "--json")

    answer = msgspec.json.decode(result.out, type=Answer)

    assert (result.code, answer.schema) == (0, "escala/plan@1")
    assert json.loads(result.out).keys() >= MINIMUM
    assert all(plan.keys() >= PLAN_MINIMUM for plan in json.loads(result.out)["plans"])


def test_terms_add_up_to_the_step(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--json").out, type=Answer)

    for plan in answer.plans:
        assert sum(plan.terms_s.values()) == pytest.approx(plan.step_s.value, rel=1e-12)


def test_ranking_is_by_time_and_the_choice_is_the_simplest_near_the_best(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--json", "--top", "50").out, type=Answer)
    steps = [plan.step_s.value for plan in answer.plans]
    assert answer.recommended is not None
    chosen = answer.plans[answer.recommended]

    near = [plan for plan in answer.plans if plan.step_s.value <= 1.05 * steps[0]]

    assert steps == sorted(steps)
    assert chosen.simplicity_points == min(plan.simplicity_points for plan in near)


def test_numbers_of_the_text_are_those_of_the_document(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--tokens", "15e9", "--json").out, type=Answer)
    assert answer.recommended is not None
    chosen = answer.plans[answer.recommended]

    text = run("plan", *eight, "--tokens", "15e9").out

    assert f"{digits(chosen.tokens_per_s_per_device.value)} tok/s/GPU" in text
    assert f"MFU {chosen.mfu * 100:.0f} % ({chosen.intervals.mfu.low * 100:.0f} to " in text
    assert chosen.run is not None
    assert f"{digits(chosen.run.device_hours.value)} GPU-h" in text


def test_run_by_hand(run, eight):
    answer = msgspec.json.decode(
        run("plan", *eight, "--tokens", "15B", "--price", "2", "--country", "ES", "--json").out, type=Answer
    )
    plan, work = answer.plans[0], answer.workload
    assert plan.run is not None
    assert plan.run.cost_usd is not None

    # 15e9 tokens / (global batch x sequence) steps; 8 devices at 2 USD an hour
    steps = 15e9 / (work.global_batch * work.sequence_tokens)
    assert plan.run.duration_s.value == pytest.approx(steps * plan.step_s.value, rel=1e-12)
    assert plan.run.cost_usd.value == pytest.approx(plan.run.duration_s.value / 3600 * 8 * 2, rel=1e-12)
    assert plan.run.co2e_kg is not None
    assert answer.cluster.country == "ES"


def test_what_nobody_gave_is_said(run, eight):
    named = [each["name"] for each in json.loads(run("plan", *eight, "--json").out)["assumptions"]]
    given = json.loads(run("plan", *eight, "--seq", "4096", "--global-batch", "64", "--json").out)

    assert named == ["sequence", "global batch", "nodes", "energy"]
    assert [each["name"] for each in given["assumptions"]] == ["nodes", "energy"]


def assumed(run, *words: str) -> dict[str, tuple[str, str]]:
    document = json.loads(run("plan", "llama-3.1-8b", *words, "--json").out)
    return {each["name"]: (each["value"], each["option"]) for each in document["assumptions"]}


def test_node_network_and_power_are_assumed_in_the_open(run):
    rows = assumed(run, "--gpus", "16", "--gpu", "h100-sxm")

    assert rows["nodes"] == ("8 devices each, nvlink4 inside (450 GB/s a device)", "--cluster")
    assert rows["network"] == ("400 Gb/s a device between nodes (ib-ndr)", "--network")
    assert rows["energy"] == ("PUE 1.56, a node draws 1.5 × its devices", "--pue")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--gpus", "16", "--gpu", "h100-sxm", "--network", "200 Gb/s"], {"nodes", "energy"}),
        (["--gpus", "8", "--gpu", "h100-sxm"], {"nodes", "energy"}),
        (["--gpus", "16", "--gpu", "gb200"], {"nodes", "energy"}),  # one NVLink domain of four nodes
        (["--gpus", "16", "--gpu", "h100-sxm", "--pue", "1.1"], {"nodes", "network", "energy"}),
        (["--gpus", "256", "--gpu", "tpu-v5e", "--engine", "maxtext"], {"nodes"}),  # its power is unknown
        (["--gpu", "h100-sxm", "--max-gpus", "16"], {"nodes", "network", "energy"}),
        (["--cluster", "leonardo", "--gpus", "64"], {"energy"}),
    ],
)
def test_of_the_machine_only_what_was_not_given_is_assumed(run, words: list[str], names: set[str]):
    assert assumed(run, *words, "--seq", "4096", "--global-batch", "256").keys() == names


def test_a_range_says_that_the_table_has_the_best_and_use_the_simplest(run):
    result = run("plan", "llama-3.1-8b", "--gpu", "h100-sxm", "--max-gpus", "16")

    assert "the table above has the best plan of each count, Use below the simplest" in result.out
    assert result.longest <= 80


def test_where_the_power_is_unknown_the_answer_says_why_there_is_no_energy(run):
    words = ["plan", "llama-3.1-8b", "--gpus", "256", "--gpu", "tpu-v5e", "--engine", "maxtext"]

    assert "energy unknown: the power of tpu-v5e is not published" in run(*words).out
    assert json.loads(run(*words, "--json").out)["energy_unknown"] == "the power of tpu-v5e is not published"


def test_a_prime_number_of_devices_is_planned(run):
    result = run("plan", "llama-3.1-8b", "--gpus", "1009", "--gpu", "h100-sxm", "--json")

    assert result.code == 0
    assert json.loads(result.out)["cluster"]["devices"] == 1009


def test_the_batch_that_reaches_the_target_is_planned(run):
    arguments = ["llama-3.2-1b", "--gpus", "8", "--gpu", "h100-sxm", "--tokens", "10B"]

    document = json.loads(
        run("plan", *arguments, "--batch", "64..128", "--critical-batch", "64", "--json").out
    )

    target, work = document["reasons"]["target"], document["workload"]
    assert [each["global_batch"] for each in target["points"]] == [64, 128]
    assert work["global_batch"] == target["chosen_batch"]
    # 10 B tokens at batch 64 are 1.5 times as many at 128: (64 + 128) / (64 + 64)
    factor = {64: 1.0, 128: 1.5}[target["chosen_batch"]]
    assert work["total_tokens"] == pytest.approx(10e9 * factor, rel=1e-9)


def test_reasons_stand_in_the_order_of_good_practice(run, eight):
    text = run("plan", *eight, "--tokens", "15B", "--loader-samples-per-s", "1e6").out

    places = [text.index(f"  {label}") for label in ("Tune", "Grow", "Floor", "Batch", "Loader")]
    assert places == sorted(places)
    block = text[places[0] : text.index("technique")]
    assert len(block.strip().splitlines()) <= 14


def test_nothing_fits_is_the_answer_no_with_remedies(run):
    # 405 B parameters with 16 bytes each: 6.5 TB of states, beyond four devices and their host
    result = run("plan", "llama-3.1-405b", "--gpus", "4", "--gpu", "h100-sxm", "--json")
    answer = msgspec.json.decode(result.out, type=Answer)

    assert result.code == 1
    assert answer.recommended is None
    assert answer.plans == ()
    assert answer.advice != ()
    assert sum(answer.rejected.values()) > 0


def test_without_a_number_of_devices_the_answer_says_how_few_and_how_many(run):
    result = run("plan", "llama-3.1-8b", "--gpu", "h100-sxm", "--max-gpus", "64", "--json")
    answer = msgspec.json.decode(result.out, type=Answer)

    assert answer.scaling is not None
    assert answer.scaling.fewest == answer.cluster.devices
    assert answer.scaling.worth is not None
    assert [point.devices for point in answer.scaling.points][-1] == 64


def test_fixed_fields_stay(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--fix", "tp=2,4,zero=3", "--json").out, type=Answer)

    assert {plan.plan["tp"] for plan in answer.plans} <= {2, 4}
    assert {plan.plan["zero"] for plan in answer.plans} == {3}


def test_fixing_what_no_plan_has_is_the_answer_no(run, eight):
    result = run("plan", *eight, "--fix", "tp=3")

    assert result.code == 1
    assert "only plans with tp=3" in result.out


def test_pareto_keeps_plans_that_no_other_beats(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--pareto", "--top", "50", "--json").out, type=Answer)
    points = [(p.step_s.value, p.memory_bytes.value, p.simplicity_points) for p in answer.plans]

    for number, own in enumerate(points):
        beaten = any(all(a <= b for a, b in zip(o, own, strict=True)) and o != own for o in points)
        assert not beaten or number == answer.recommended


def test_output_holds_the_recommended_plan(run, eight, tmp_path: Path):
    result = run("plan", *eight, "-o", "plan.json", "--json")
    answer = json.loads(result.out)

    written = json.loads((tmp_path / "plan.json").read_text())

    assert written["schema"] == "escala/plan-file@1"
    assert written["plan"] == answer["plans"][answer["recommended"]]["plan"]


def test_nothing_is_written_without_output(run, eight, tmp_path: Path):
    run("plan", *eight)

    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_output_that_cannot_be_written_is_one_line_and_leaves_nothing(run, eight, tmp_path: Path):
    (tmp_path / "file").write_text("kept")

    result = run("plan", *eight, "-o", "file/plan.json")

    assert result.code == 2
    assert result.err.startswith("error: file/plan.json cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["file"]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a second file system")
def test_a_failed_write_keeps_the_old_file(run, eight, tmp_path: Path, monkeypatch):
    (tmp_path / "plan.json").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = run("plan", *eight, "-o", "plan.json")

    assert result.code == 2
    assert "no space left on device" in result.err
    assert (tmp_path / "plan.json").read_text() == "old"
    assert [path.name for path in tmp_path.glob(".plan*")] == []


def test_a_cache_that_cannot_be_written_is_a_note(run, eight, tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ESCALA_CACHE_DIR", str(tmp_path / "file" / "cache"))

    result = run("plan", *eight)

    assert result.code == 0
    assert result.err.startswith("note: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", "0"], "'0' is no whole number from 1 to 1,000,000"),
        (["--gpus", "-8"], "'-8' is no whole number"),
        (["--gpus", "2.5"], "'2.5' is no whole number"),
        (["--gpus", "1e9"], "'1e9' is no whole number"),
        (["--gpus", "1000000000"], "'1000000000' is no whole number"),
        (["--gpus", "nan"], "'nan' is no whole number"),
        (["--gpus", "٣"], "is no whole number"),
        (["--gpus", "9" * 500], "is no whole number"),
        (["--seq", "0"], "'0' is no whole number"),
        (["--global-batch", "inf"], "'inf' is no whole number"),
        (["--tokens", "nan"], "'nan' is no number"),
        (["--tokens", "-1"], "'-1' is no number"),
        (["--tokens", "many"], "write for example 15e9 or 15B"),
        (["--tolerance", "2"], "'2' is no number from 0 to 1"),
        (["--price", "-3"], "'-3' is no number from 0 to 100000"),
        (["--pue", "0.5"], "'0.5' is no number from 1 to 5"),
        (["--top", "0"], "'0' is no whole number"),
        (["--gpu", "h100sxx"], "did you mean h100-sxm"),
        (["--network", "fast"], "unknown network 'fast'"),
        (["--precision", "bf61"], "unknown precision 'bf61': did you mean bf16?"),
        (["--precision", "nvfp4"], "h100-sxm has no unit for nvfp4; give --precision mxfp8, fp8-blockwise"),
        (["--precision", "fp8", "--engine", "megatron-2022"], "engine megatron-2022 has no fp8-tensorwise"),
        (["--method", "loar"], "did you mean lora or qlora?"),
        (["--optimizer", "adam"], "did you mean adamw"),
        (["--engine", "megatorn"], "unknown engine 'megatorn'"),
        (["--objective", "money"], "choose time, cost, energy"),
        (["--country", "Atlantis"], "unknown country 'Atlantis'"),
        (["--lora-rank", "8"], "--lora-rank goes with --method lora or qlora"),
        (["--fix", "tensor=2"], "unknown field to fix 'tensor'"),
        (["--fix", "tp"], "names no field"),
        (["--fix", "tp="], "is not allowed"),
        (["--fix", "schedule=1f2b"], "did you mean 1f1b?"),
        (["--fix", ""], "names no field"),
        (["--cluster", "eos"], "--gpu and --cluster both describe the machine"),
        (["--min-gpus", "4"], "give the number or the range"),
        (["--batch", "4096"], "is no range of batches"),
        (["--batch", "64..128"], "add --tokens"),
        (["--batch", "64..128", "--tokens", "1B", "--method", "lora"], "no published law for fine-tuning"),
        (["--critical-batch", "many"], "neither a number of samples nor a run"),
        (["--keep", "85"], "'85' is no number from 0.01 to 1"),
        (["--loader-samples-per-s", "0"], "neither a rate nor a bench.json"),
    ],
)
def test_wrong_input_is_one_clear_line(run, eight, arguments: list[str], said: str):
    result = run("plan", *eight, *arguments)

    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert said in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["llama-3.1-8c", "--gpus", "8", "--gpu", "h100-sxm"], "did you mean llama-3.1-8b"),
        (["no/such/config.json", "--gpus", "8", "--gpu", "h100-sxm"], "does not exist"),
        (["llama-3.1-8b", "--gpus", "8"], "no device is named"),
        (["llama-3.1-8b", "--cluster", "no.toml"], "no.toml does not exist"),
        (["llama-3.1-8b", "--cluster", "eso"], "unknown cluster 'eso'"),
        (
            ["llama-3.1-8b", "--gpu", "h100-sxm", "--min-gpus", "8", "--max-gpus", "4"],
            "is above --max-gpus 4",
        ),
        (["bert-base", "--gpus", "1", "--gpu", "t4"], "t4 has no unit for bf16"),
        (["resnet-50", "--gpus", "1", "--gpu", "h100-sxm", "--seq", "9"], "resnet-50 takes no row of tokens"),
        (["", "--gpus", "1", "--gpu", "t4"], "unknown network ''"),
    ],
)
def test_wrong_names_are_one_clear_line(run, arguments: list[str], said: str):
    result = run("plan", *arguments)

    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "llama-3.1-8b",
            "--gpus",
            "8",
            "--gpu",
            "h100-sxm",
            "--tokens",
            "15e9",
            "--price",
            "3",
            "--country",
            "ES",
        ],
        ["llama-3.1-405b", "--gpus", "16384", "--gpu", "h100-sxm"],
        ["mixtral-8x22b", "--gpus", "512", "--gpu", "h100-sxm", "--seq", "32768"],
        ["llama-3.1-70b", "--gpus", "1", "--gpu", "h100-sxm"],
        ["llama-3.1-70b", "--gpu", "h100-sxm", "--max-gpus", "64"],
        ["resnet-50", "--gpus", "8", "--gpu", "a100-sxm-80gb", "--tokens", "100M"],
        ["t5-3b", "--gpus", "8", "--gpu", "a100-sxm-80gb"],
        ["bert-base", "--gpus", "1", "--gpu", "t4", "--precision", "fp16"],
        ["llama-3.1-8b", "--cluster", "eos", "--pareto"],
        ["qwen3-8b", "--gpus", "4", "--gpu", "a100-sxm-80gb", "--method", "lora"],
    ],
)
def test_no_line_is_longer_than_80_columns(run, arguments: list[str]):
    result = run("plan", *arguments)

    assert result.longest <= 80
    assert not any(line.endswith(" ") for line in result.out.splitlines())


def test_adapters_around_four_bits_are_planned_and_need_less_memory(run):
    lora, qlora = (
        run("plan", "qwen3-8b", "--gpus", "1", "--gpu", "a100-sxm-80gb", "--method", method, "--json")
        for method in ("lora", "qlora")
    )

    work = json.loads(qlora.out)["workload"]
    assert (work["method"], work["lora_rank"]) == ("qlora", 16)
    need = [json.loads(each.out)["plans"][0]["memory_bytes"]["value"] for each in (lora, qlora)]
    assert need[1] < need[0]


@pytest.mark.parametrize("columns", [40, 60, 140])
def test_other_widths_are_kept_to(run, eight, monkeypatch, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))

    out = run("plan", *eight).out

    assert max(len(line) for line in out.splitlines()) <= min(columns, 110)
    assert "(no reshard)" in out


def ranking_of(out: str) -> dict[str, str]:
    """Label and lines of each plan in the text."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  #  plan"))
    ranked: dict[str, str] = {}
    for line in lines[start + 1 : lines.index("", start)]:
        label = line[:5].strip()
        last = label or list(ranked)[-1]
        ranked[last] = f"{ranked.get(last, '')} {line[5:]}"
    return ranked


def test_ties_and_odds_stand_in_the_ranking(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--json").out, type=Answer)
    result = run("plan", *eight)
    ranked = ranking_of(result.out)

    for plan in answer.plans:
        told = ranked[f"{plan.rank}{'=' * plan.is_tied}"]
        assert ("out of memory" in told) == (plan.out_of_memory_probability >= 0.1)
    assert "tied with number 1: within 5 %, where the order is noise" in ranked["="]


def test_the_reason_says_that_the_choice_is_a_tie(run, eight):
    answer = msgspec.json.decode(run("plan", *eight, "--json").out, type=Answer)
    assert answer.recommended
    said = " ".join(run("plan", *eight).out.split())

    assert answer.plans[answer.recommended].is_tied
    assert "simplest within 5 % of the best (number 1 is" in said
    assert ": a tie)" in said


def test_an_engine_and_a_device_without_published_runs_are_named(run):
    words = ["plan", "llama-3.1-8b", "--gpus", "8", "--gpu", "mi300x", "--engine", "deepspeed"]
    calibration = json.loads(run(*words, "--json").out)["calibration"]
    said = " ".join(run(*words).out.split())

    assert (calibration["engine_is_calibrated"], calibration["accelerator_is_calibrated"]) == (False, False)
    assert all(note in said for note in calibration["notes"])
    assert said.count("fewer than 5 published runs;") == len(calibration["notes"]) == 2


def test_of_a_known_engine_on_a_known_device_nothing_is_noted(run, eight):
    assert json.loads(run("plan", *eight, "--json").out)["calibration"]["notes"] == []
    assert "published runs;" not in run("plan", *eight).out


def test_frozen_parts_and_images_are_told_and_written_with_the_plan(run, tmp_path):
    given = ("plan", "qwen3-vl-2b", "--gpus", "4", "--gpu", "h100-sxm", "--seq", "4096", "--method", "full")
    file = str(tmp_path / "plan.json")
    result = run(
        *given, "--freeze", "vision,layers:0-3", "--images", "2", "--image", "448", "--json", "-o", file
    )

    work = json.loads(result.out)["workload"]
    # 2 images of 14 x 14 tokens
    assert (work["frozen"], work["image_tokens"]) == ("vision,layers:0-3", 392)
    told = run("explain", file).out
    assert "frozen vision,layers:0-3" in told
    assert "392 of images" in told
    assert run("explain", file, "--json").code == 0


def test_one_image_is_assumed_where_nobody_says_what_a_sample_shows(run):
    result = run("plan", "gemma-3-4b", "--gpus", "8", "--gpu", "h100-sxm", "--json")

    assumed = {each["name"]: each for each in json.loads(result.out)["assumptions"]}
    assert assumed["images"]["value"] == "1 a sample, 256 tokens of the text"
    assert assumed["images"]["option"] == "--images"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--freeze", "vison"), "unknown part 'vison'"),
        (("--image", "3x"), "'3x' is no size of an image; write for example 896x1344"),
        (("--image", "99999"), "each side is 1 to 65,536"),
        (("--images", "300"), "take 76,800 of 8,192 tokens"),
        (("--image", "448"), "scales every image to one size"),
    ],
)
def test_wrong_parts_and_images_are_refused_in_one_line(run, options, message):
    result = run("plan", "gemma-3-4b", "--gpus", "8", "--gpu", "h100-sxm", *options)

    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1
