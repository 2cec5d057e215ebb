"""Each rule of torchtitan with a configuration that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.findings import Severity
from escala.foreign.jobs import Job, read_job

HEAD = "from torchtitan.models.llama3.config_registry import llama3_8b, llama3_70b, llama3_405b\n"
MOE = "from torchtitan.models.qwen3.config_registry import qwen3_30b_a3b\n"
ALWAYS = ("torchtitan-accumulation", "torchtitan-toml-old", "torchtitan-devices")
NO_GRAPHS = "c.training.disable_cuda_graphs = True"


def job(folder: Path, text: str, name: str, versions: dict[str, str], **given: Value) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], given, versions)


def recipe(folder: Path, lines: list[str], base: str = "llama3_8b", **given: Value) -> list[str]:
    """Rules that speak of a function which sets some values."""
    head = MOE if base.startswith("qwen3_") else HEAD
    body = "".join(f"    {line}\n" for line in lines)
    found = job(folder, f"{head}def run():\n    c = {base}()\n{body}    return c\n", "run.py", {}, **given)
    return [each.rule for each in found.findings]


def toml(folder: Path, text: str, version: str = "", **given: Value) -> list[tuple[str, int]]:
    found = job(folder, text, "run.toml", {"torchtitan": version} if version else {}, **given)
    return [(each.rule, each.place.line) for each in found.findings if each.place]


@pytest.mark.parametrize(
    ("rule", "wrong", "right", "given"),
    [
        (
            "torchtitan-mesh",
            ["c.parallelism.data_parallel_shard_degree = 4", "c.parallelism.tensor_parallel_degree = 4"],
            ["c.parallelism.data_parallel_shard_degree = 2", "c.parallelism.tensor_parallel_degree = 4"],
            {"devices": 8},
        ),
        (
            "torchtitan-mesh",
            ["c.parallelism.tensor_parallel_degree = 8"],
            ["c.parallelism.tensor_parallel_degree = 4"],
            {"devices": 12},  # 12 % 8
        ),
        (
            "torchtitan-sequence",
            ["c.parallelism.context_parallel_degree = 4", "c.training.seq_len = 6004"],  # 6004 % 8 = 4
            ["c.parallelism.context_parallel_degree = 4", "c.training.seq_len = 6008"],
            {},
        ),
        (
            "torchtitan-sequence",
            ["c.parallelism.tensor_parallel_degree = 8", "c.training.seq_len = 4100"],
            [
                "c.parallelism.tensor_parallel_degree = 8",
                "c.training.seq_len = 4100",
                "c.parallelism.enable_sequence_parallel = False",
            ],
            {},
        ),
        (
            "torchtitan-devices",
            ["c.parallelism.data_parallel_shard_degree = 4"],
            ["c.parallelism.data_parallel_shard_degree = -1"],
            {},
        ),
        (
            "torchtitan-sequence-long",
            ["c.training.seq_len = 262144"],
            ["c.training.seq_len = 131072"],
            {},
        ),
        (
            "torchtitan-heads",
            ["c.parallelism.tensor_parallel_degree = 16"],  # 8 KV heads
            ["c.parallelism.tensor_parallel_degree = 8"],
            {},
        ),
        (
            "torchtitan-experts-none",
            ["c.parallelism.expert_parallel_degree = 4"],
            ["c.parallelism.expert_parallel_degree = 1"],
            {},
        ),
        (
            "torchtitan-batch",
            ["c.training.global_batch_size = 12"],  # 1 * 8 ranks
            ["c.training.global_batch_size = 16"],
            {"devices": 8},
        ),
        (
            "torchtitan-accumulation",
            ["c.training.global_batch_size = 16"],
            ["c.training.global_batch_size = 8"],
            {"devices": 8},
        ),
        (
            "torchtitan-schedule",
            ["c.parallelism.pipeline_parallel_schedule = '1FIB'"],
            ["c.parallelism.pipeline_parallel_schedule = '1f1b'"],
            {},
        ),
        (
            "torchtitan-micro-batches",
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.training.local_batch_size = 9",
                "c.parallelism.pipeline_parallel_microbatch_size = 2",
            ],
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.training.local_batch_size = 8",
                "c.parallelism.pipeline_parallel_microbatch_size = 2",
            ],
            {},
        ),
        (
            "torchtitan-rounds",
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 4",
                "c.parallelism.pipeline_parallel_schedule = 'Interleaved1F1B'",
                "c.training.local_batch_size = 9",  # two rounds of 4.5
            ],
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 4",
                "c.parallelism.pipeline_parallel_schedule = 'Interleaved1F1B'",
                "c.training.local_batch_size = 10",  # two rounds of 5
            ],
            {},
        ),
        (
            "torchtitan-bubble",
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 4",
                "c.training.local_batch_size = 3",
            ],
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 4",
                "c.training.local_batch_size = 4",
            ],
            {},
        ),
        (
            "torchtitan-reshard-pipeline",
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.parallelism.fsdp_reshard_after_forward = 'always'",
            ],
            ["c.parallelism.fsdp_reshard_after_forward = 'always'"],
            {},
        ),
        (
            "torchtitan-zero-bubble-recompute",
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.parallelism.pipeline_parallel_schedule = 'ZBVZeroBubble'",
                "c.activation_checkpoint = FullAC.Config()",
            ],
            [
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.parallelism.pipeline_parallel_schedule = 'ZBVZeroBubble'",
            ],
            {},
        ),
        (
            "torchtitan-stages",
            [  # (32 + 2) / 8 = 5 stages for 2 ranks
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.parallelism.pipeline_parallel_layers_per_stage = 8",
            ],
            [  # (32 + 2) / 17 = 2 stages
                NO_GRAPHS,
                "c.parallelism.pipeline_parallel_degree = 2",
                "c.parallelism.pipeline_parallel_layers_per_stage = 17",
            ],
            {},
        ),
        (
            "torchtitan-cuda-graphs",
            ["c.parallelism.pipeline_parallel_degree = 2"],
            [NO_GRAPHS, "c.parallelism.pipeline_parallel_degree = 2"],
            {},
        ),
        (
            "torchtitan-async-compile",
            ["c.compile.enable_async_tensor_parallel = True"],
            ["c.compile.enable_async_tensor_parallel = True", "c.compile.enable = True"],
            {},
        ),
        (
            "torchtitan-async-idle",
            ["c.compile = CompileConfig(enable=True, enable_async_tensor_parallel=True)"],
            [
                "c.compile = CompileConfig(enable=True, enable_async_tensor_parallel=True)",
                "c.parallelism.tensor_parallel_degree = 2",
            ],
            {},
        ),
        (
            "torchtitan-budget-compile",
            ["c.activation_checkpoint = MemoryBudgetAC.Config()"],
            ["c.activation_checkpoint = MemoryBudgetAC.Config()", "c.compile.enable = True"],
            {},
        ),
        (
            "torchtitan-scaled-compile",
            ["c.model_spec = model_registry('8B', converters=[Float8LinearConverter.Config()])"],
            [
                "c.model_spec = model_registry('8B', converters=[Float8LinearConverter.Config()])",
                "c.compile.enable = True",
            ],
            {},
        ),
        (
            "torchtitan-scaled-device",
            [
                "c.model_spec = model_registry('8B', converters=[MXFP8LinearConverter.Config()])",
                "c.compile.enable = True",
            ],
            [
                "c.model_spec = model_registry('8B', converters=[Float8LinearConverter.Config()])",
                "c.compile.enable = True",
            ],
            {"device": "h100-sxm"},
        ),
        (
            "torchtitan-context-varlen",
            [
                "c.parallelism.context_parallel_degree = 2",
                "c.model_spec = model_registry('8B', attn_backend='varlen')",
            ],
            ["c.parallelism.context_parallel_degree = 2"],
            {},
        ),
        (
            "torchtitan-load-path",
            ["c.checkpoint.enable = True", "c.checkpoint.initial_load_path = './weights'"],
            ["c.checkpoint.enable = True", "c.checkpoint.initial_load_path = '/weights'"],
            {},
        ),
        ("misspelt-key", ["c.training.seq_lenn = 4096"], ["c.training.seq_len = 4096"], {}),
        ("wrong-value", ["c.training.dtype = 'fp32'"], ["c.training.dtype = 'float32'"], {}),
        (
            "removed-key",
            ["c.activation_checkpoint.mode = 'full'"],
            ["c.activation_checkpoint = FullAC.Config()"],
            {},
        ),
    ],
)
def test_each_rule_speaks_of_what_breaks_it_and_not_of_what_nearly_does(
    tmp_path: Path, rule: str, wrong: list[str], right: list[str], given: dict[str, Value]
) -> None:
    assert rule in recipe(tmp_path, wrong, **given)
    assert rule not in recipe(tmp_path, right, **given)


@pytest.mark.parametrize(
    ("rule", "wrong", "right", "given"),
    [
        (
            "torchtitan-experts",
            [NO_GRAPHS, "c.parallelism.expert_parallel_degree = 12"],  # 128 experts
            [NO_GRAPHS, "c.parallelism.expert_parallel_degree = 16"],
            {"devices": 48},
        ),
        (
            "torchtitan-expert-mesh",
            [NO_GRAPHS, "c.parallelism.expert_parallel_degree = 16"],
            [NO_GRAPHS, "c.parallelism.expert_parallel_degree = 8"],
            {"devices": 8},
        ),
        (
            "torchtitan-cuda-graphs",
            ["c.parallelism.expert_parallel_degree = 8", "c.training.disable_cuda_graphs = False"],
            ["c.parallelism.expert_parallel_degree = 8", NO_GRAPHS],
            {"devices": 8},
        ),
    ],
)
def test_each_rule_of_experts_speaks_of_what_breaks_it(
    tmp_path: Path, rule: str, wrong: list[str], right: list[str], given: dict[str, Value]
) -> None:
    assert rule in recipe(tmp_path, wrong, "qwen3_30b_a3b", **given)
    assert rule not in recipe(tmp_path, right, "qwen3_30b_a3b", **given)


def test_a_pipeline_refuses_a_model_with_tied_weights(tmp_path: Path) -> None:
    lines = [NO_GRAPHS, "c.parallelism.pipeline_parallel_degree = 2"]

    tied = [*lines, "c.model_spec = llama3.model_registry('1B')"]

    head = "from torchtitan.models import llama3\n"
    assert "torchtitan-tied-pipeline" in recipe(tmp_path, [head.strip(), *tied])
    assert "torchtitan-tied-pipeline" not in recipe(tmp_path, lines)


def test_context_parallelism_is_refused_for_models_that_lack_it(tmp_path: Path) -> None:
    lines = ["c.parallelism.context_parallel_degree = 2", "c.model_spec = qwen3_5.model_registry('4B')"]
    text = "from torchtitan.models import qwen3_5\n"

    assert "torchtitan-context-model" in recipe(tmp_path, [text.strip(), *lines])


TOML = """[model]
name = "llama3"
flavor = "8B"
converters = {converters}
[training]
{batch} = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "selective"
selective_ac_option = "{option}"
"""


def test_an_older_toml_is_read_by_its_own_names(tmp_path: Path) -> None:
    text = TOML.format(converters='["float8"]', batch="local_batch_size", option="op")

    assert toml(tmp_path, text) == [
        ("torchtitan-toml-old", 1),
        ("torchtitan-scaled-compile", 4),
        ("torchtitan-devices", 9),
    ]


def test_a_toml_under_the_current_version_is_refused_with_its_new_form(tmp_path: Path) -> None:
    text = TOML.format(converters="[]", batch="batch_size", option="op")

    found = job(tmp_path, text, "run.toml", {"torchtitan": "0.3.0"})

    [error] = [each for each in found.findings if each.rule == "torchtitan-toml-gone"]
    assert error.severity is Severity.ERROR
    assert "config.training.local_batch_size for training.batch_size" in error.fix


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TOML.format(converters='"float8"', batch="local_batch_size", option="op"),
            ("torchtitan-converters-text", 4),
        ),
        (
            TOML.format(converters="[]", batch="local_batch_size", option="some"),
            ("torchtitan-selective-option", 12),
        ),
        (TOML.format(converters="[]", batch="local_batchsize", option="2"), ("misspelt-key", 6)),
    ],
)
def test_older_files_are_checked_too(tmp_path: Path, text: str, expected: tuple[str, int]) -> None:
    assert expected in toml(tmp_path, text)


def test_four_faults_of_one_file_are_all_found(tmp_path: Path) -> None:
    text = """[model]
name = "qwen3_5_moe"
flavor = "35B-A3B"
[training]
local_batch_size = 1
global_batch_size = 20
seq_len = 6004
[parallelism]
data_parallel_shard_degree = 4
tensor_parallel_degree = 4
context_parallel_degree = 4
expert_parallel_degree = 12
"""

    # 4 * 4 * 4 = 64 devices; 6004 % (2 * 4 * 4); 2 KV heads; 12 divides neither 256 experts nor 64 ranks
    found = [each for each in toml(tmp_path, text, devices=16) if each[0] not in ALWAYS]

    assert found == [
        ("torchtitan-sequence", 7),
        ("torchtitan-mesh", 9),
        ("torchtitan-heads", 10),
        ("torchtitan-expert-mesh", 12),
        ("torchtitan-experts", 12),
    ]


def beside(
    folder: Path, flags: str, lines: str = "    c.parallelism.tensor_parallel_degree = 16\n"
) -> list[str]:
    """Rules that speak of a configuration beside the command that starts it."""
    (folder / "mine.py").write_text(f"{HEAD}def run():\n    c = llama3_8b()\n{lines}    return c\n")
    (folder / "run.sh").write_text(
        f"torchrun --standalone --nproc-per-node 32 -m torchtitan.train --module mine {flags}\n"
    )
    found = read_job([str(folder / "mine.py"), str(folder / "run.sh")], {}, {})
    return [each.rule for each in found.findings if each.severity is Severity.ERROR]


def test_flags_of_the_command_count_before_the_file(tmp_path: Path) -> None:
    assert beside(tmp_path, "--config run") == ["torchtitan-heads"]
    assert beside(tmp_path, "--config run --parallelism.tensor_parallel_degree 8") == []
    assert beside(tmp_path, "--config run --parallelism.tensor_parallel_degree 32") == ["torchtitan-heads"]


def test_the_function_that_a_command_names_has_to_be_there(tmp_path: Path) -> None:
    assert beside(tmp_path, "--config runs", "") == ["torchtitan-function"]
    assert beside(tmp_path, "--config run", "") == []


def test_classes_of_ones_own_may_have_other_keys(tmp_path: Path) -> None:
    lines = ["c.training = MyTraining(horizon=3)", "c.parallelism = ParallelismConfig(horizon=3)"]

    assert recipe(tmp_path, lines[:1]) == []
    assert recipe(tmp_path, lines[1:]) == ["unknown-key"]


@pytest.mark.parametrize(("trainer", "expected"), [("Trainer", ["unknown-key"]), ("MyTrainer", [])])
def test_trainers_of_ones_own_may_have_other_sections(
    tmp_path: Path, trainer: str, expected: list[str]
) -> None:
    text = f"{HEAD}def run():\n    c = {trainer}.Config()\n    c.encoder.depth = 3\n    return c\n"

    assert [each.rule for each in job(tmp_path, text, "run.py", {}).findings] == expected
