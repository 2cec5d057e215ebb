"""Each rule of Megatron with arguments that break it and arguments that nearly do."""

from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job

BASE = {
    "num-layers": "8",
    "hidden-size": "64",
    "num-attention-heads": "8",
    "seq-length": "32",
    "max-position-embeddings": "32",
    "micro-batch-size": "1",
    "global-batch-size": "32",
    "use-distributed-optimizer": "",
    "bf16": "",
}
SETTING = "CUDA_DEVICE_MAX_CONNECTIONS=1 "
TP, PP, CP = "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"
EP, VIRTUAL = "expert-model-parallel-size", "num-layers-per-virtual-pipeline-stage"
GROUPED = "--moe-grouped-gemm --disable-bias-linear"
FULL = "recompute-granularity full"


def job(folder: Path, options: str, *, setting: str = SETTING, version: str = "") -> Job:
    """Eight devices; an option of the base that is given again is replaced, with "-name" left out."""
    given = dict(BASE)
    for each in options.split(" --") if options else ():
        name, _, value = each.removeprefix("--").partition(" ")
        given.pop(name.removeprefix("-"), None)
        if not name.startswith("-"):
            given[name] = value
    lines = [f"--{name} {value}".rstrip() for name, value in given.items()]
    text = f"{setting}torchrun --nproc-per-node 8 pretrain_gpt.py " + " \\\n ".join(lines)
    (folder / "run.sh").write_text(text)
    return read_job([str(folder / "run.sh")], {}, {"megatron": version} if version else {})


CASES = {
    "megatron-world": (f"{TP} 3 --num-attention-heads 9 --kv-channels 8", f"{TP} 2"),
    "megatron-heads": (f"{TP} 2 --num-attention-heads 9 --kv-channels 8", f"{TP} 2 --num-attention-heads 16"),
    "megatron-head-width": ("num-attention-heads 10", "num-attention-heads 10 --kv-channels 8"),
    "megatron-groups": (
        f"{TP} 4 --group-query-attention --num-query-groups 6",
        f"{TP} 2 --group-query-attention --num-query-groups 6",
    ),
    "megatron-groups-shared": (
        f"{TP} 4 --group-query-attention --num-query-groups 2",
        f"{TP} 2 --group-query-attention --num-query-groups 2",
    ),
    "megatron-layers": (
        f"{PP} 4 --num-layers 10",
        f"{PP} 4 --num-layers 10 --account-for-embedding-in-pipeline-split"
        " --account-for-loss-in-pipeline-split",
    ),
    "megatron-layers-virtual": (f"{PP} 2 --num-layers 10 --{VIRTUAL} 2", f"{PP} 2 --{VIRTUAL} 2"),
    "megatron-uneven": (
        f"{PP} 4 --decoder-first-pipeline-num-layers 1",
        f"{PP} 4 --decoder-first-pipeline-num-layers 2",
    ),
    "megatron-interleaving": (f"{PP} 1 --num-virtual-stages-per-pipeline-rank 2", f"{PP} 2 --{VIRTUAL} 2"),
    "megatron-batch": ("global-batch-size 36", "global-batch-size 40"),
    "megatron-interleaved-batch": (
        f"{PP} 4 --{VIRTUAL} 1 --global-batch-size 12",  # 6 micro-batches over 2 ranks
        f"{PP} 4 --{VIRTUAL} 1 --global-batch-size 16",
    ),
    "megatron-few-micro-batches": (f"{PP} 4 --global-batch-size 6", f"{PP} 4 --global-batch-size 8"),
    "megatron-sequence": (  # 2 * lcm(2, 4) = 8
        f"{CP} 2 --{TP} 4 --sequence-parallel --seq-length 28",
        f"{CP} 2 --{TP} 4 --sequence-parallel --seq-length 24",
    ),
    "megatron-positions": ("seq-length 64", "seq-length 16"),
    "megatron-experts": (
        f"{EP} 8 --num-experts 12 --moe-grouped-gemm",
        f"{EP} 8 --num-experts 16 --moe-grouped-gemm",
    ),
    "megatron-experts-missing": (f"{EP} 8", f"{EP} 1"),
    "megatron-expert-ranks": (
        f"{EP} 8 --num-experts 16 {GROUPED} --{TP} 2 --sequence-parallel",  # 8 * 2 > 8
        f"{EP} 8 --num-experts 16 {GROUPED} --{TP} 2 --sequence-parallel --expert-tensor-parallel-size 1",
    ),
    "megatron-grouped-gemm": (f"{EP} 4 --num-experts 8", f"{EP} 8 --num-experts 8"),
    "megatron-experts-without-sp": (
        f"{EP} 4 --num-experts 8 {GROUPED} --{TP} 2",
        f"{EP} 4 --num-experts 8 {GROUPED} --{TP} 2 --sequence-parallel",
    ),
    "megatron-expert-biases": (
        f"{EP} 4 --num-experts 8 --moe-grouped-gemm --{TP} 2 --sequence-parallel",
        f"{EP} 4 --num-experts 8 --moe-grouped-gemm --{TP} 2 --sequence-parallel"
        " --expert-tensor-parallel-size 1",
    ),
    "megatron-replicated-states": ("-use-distributed-optimizer", f"-use-distributed-optimizer --{TP} 8"),
    "megatron-vocabulary": (
        f"vocab-size 9000 --{TP} 8",  # 9 * 1024 = 9216 rows, 216 of 9000 without a word
        f"vocab-size 9200 --{TP} 8",
    ),
    "megatron-needs": (FULL, f"{FULL} --recompute-method uniform --recompute-num-layers 1"),
    "megatron-clash": (
        "recompute-granularity selective --recompute-method block",
        "recompute-granularity selective --recompute-modules core_attn mlp",
    ),
    "megatron-unused": ("fp8-recipe mxfp8", "fp8-recipe mxfp8 --fp8-format e4m3"),
    "megatron-sp-alone": ("sequence-parallel", f"sequence-parallel --{TP} 2"),
    "megatron-flash-flag": ("use-flash-attn", "attention-backend flash"),
    "megatron-learning-rate": ("lr 1.0e-5 --min-lr 1e-4", "lr 1e-3 --min-lr 1e-4"),
}


@pytest.mark.parametrize("rule", CASES)
def test_what_breaks_a_rule_is_found_and_what_nearly_does_is_not(tmp_path: Path, rule: str) -> None:
    broken, sound = CASES[rule]

    assert rule in [each.rule for each in job(tmp_path, broken).findings]
    assert [each.rule for each in job(tmp_path, sound).findings] == []


@pytest.mark.parametrize(
    ("setting", "options", "expected"),
    [
        ("", f"{TP} 2", "megatron-connections-unset"),
        ("", f"{CP} 2", "megatron-connections-unset"),
        ("", "", None),
        ("CUDA_DEVICE_MAX_CONNECTIONS=8 ", f"{TP} 2", "megatron-connections"),
        ("CUDA_DEVICE_MAX_CONNECTIONS=8 ", "", None),
        (SETTING, f"{TP} 2", None),
        (SETTING, "use-megatron-fsdp --ckpt-format fsdp_dtensor", "megatron-connections-fsdp"),
        ("", "use-megatron-fsdp --ckpt-format fsdp_dtensor", None),
    ],
)
def test_one_connection_goes_with_tp_and_cp_and_not_with_fsdp(
    tmp_path: Path, setting: str, options: str, expected: str | None
) -> None:
    found = [each.rule for each in job(tmp_path, options, setting=setting).findings]

    assert found == ([expected] if expected else [])


def test_blackwell_needs_no_single_connection(tmp_path: Path) -> None:
    path = job(tmp_path, f"{TP} 2", setting="").readings[0].document.file

    assert [each.rule for each in read_job([path], {"device": "b200-sxm"}, {}).findings] == []


def test_groups_below_tp_are_an_error_before_core_0_16(tmp_path: Path) -> None:
    options = f"{TP} 4 --group-query-attention --num-query-groups 2"

    found = job(tmp_path, options, version="0.15.3").findings

    assert [(each.rule, each.severity) for each in found] == [("megatron-groups", "error")]


@pytest.mark.parametrize(
    ("options", "version", "expected"),
    [
        ("rampup-batch-size 8 7 100", "0.16.1", ["megatron-rampup"]),  # 24 is no multiple of 7
        ("rampup-batch-size 4 4 100", "0.16.1", ["megatron-rampup-ranks"]),
        ("rampup-batch-size 8 8 100", "0.16.1", []),
        ("rampup-batch-size 8 8 100", "0.17.1", []),
        ("rampup-batch-size 8 8 100", "0.18.0", ["megatron-rampup-ignored"]),
        ("rampup-batch-size 8 8 100", "core_r0.19", ["megatron-rampup-ignored"]),
    ],
)
def test_batches_grow_evenly_before_core_0_18_and_not_at_all_since(
    tmp_path: Path, options: str, version: str, expected: list[str]
) -> None:
    assert [each.rule for each in job(tmp_path, options, version=version).findings] == expected


def test_layers_that_are_left_over_are_counted(tmp_path: Path) -> None:
    # 80 layers over 16 stages are 5 each; in pairs that is 4, and 16 * 4 = 64
    found = job(tmp_path, f"{PP} 8 --num-layers 40 --{VIRTUAL} 2 --global-batch-size 8")

    [why] = [each.why for each in found.findings if each.rule == "megatron-layers-virtual"]
    assert "silently train 32 of 40 layers" in why


def test_the_line_of_a_finding_is_that_of_its_option(tmp_path: Path) -> None:
    [found] = job(tmp_path, "global-batch-size 36").findings

    assert found.place is not None
    assert found.place.line == 9  # the last of nine options, one a line
    [edit] = found.edits
    assert edit.text == "40"


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ("tensor_model_parallel_size 1", ["misspelt-key"]),
        ("tensor-model-paralel-size 1", ["misspelt-key"]),
        ("enable-cuda-graph", ["deprecated-key"]),
        ("cuda-graph-impl locale", ["wrong-value"]),
        ("train-iters many", ["wrong-type"]),
        ("bf16 true", ["wrong-type"]),
        ("lr 3e-4", []),
        ("train-iters $STEPS", []),
    ],
)
def test_options_are_those_of_the_parser(tmp_path: Path, options: str, rules: list[str]) -> None:
    assert [each.rule for each in job(tmp_path, options).findings] == rules


@pytest.mark.parametrize("value", ["0", "-1", "--1", "999999999999999999", "1e400", "nan", "$X", "''"])
@pytest.mark.parametrize("name", [TP, PP, CP, EP, VIRTUAL, "num-layers", "num-experts", "micro-batch-size"])
def test_no_number_stops_the_reading(tmp_path: Path, name: str, value: str) -> None:
    others = f"{PP} 2 --{VIRTUAL} 2 --{EP} 2 --num-experts 6 --rampup-batch-size {value} 1 1"

    assert job(tmp_path, f"{others} --{name} {value}").readings


@pytest.mark.parametrize(("nodes", "expected"), [("${NNODES:-1}", []), ("1", ["megatron-world"])])
def test_nodes_that_a_variable_may_change_are_assumed(
    tmp_path: Path, nodes: str, expected: list[str]
) -> None:
    line = f"torchrun --nnodes={nodes} --nproc-per-node=8 pretrain_gpt.py --{TP} 8 --{PP} 2 --num-layers 4\n"
    (tmp_path / "run.sh").write_text(f"export CUDA_DEVICE_MAX_CONNECTIONS=1\n{line}")

    found = read_job([str(tmp_path / "run.sh")], {}, {})

    assert [each.rule for each in found.findings if each.rule == "megatron-world"] == expected
    assert found.count("nodes") == 1
    assert found.count("devices") == 8
