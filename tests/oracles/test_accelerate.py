"""Accelerate itself: its keys are those of the table, and its launcher reads what is written."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from escala.foreign.accelerate import writing, writing_deepspeed, writing_megatron
from escala.foreign.accelerate.reading import SWITCHES
from escala.foreign.accelerate.rules import IGNORED_BESIDE_FILE
from escala.foreign.documents import read_documents
from escala.foreign.launchlines import launch_lines
from escala.foreign.orders import Order, Writer
from escala.model.plan import Offload, Recompute
from foreign.accelerate.test_accelerate_round_trip import DEEPSPEED, FSDP2, MEGATRON
from foreign.round import written as written_files
from oracles.accelerate_keys import switches, table
from oracles.keys import written
from oracles.launcher import environment, launched
from oracles.needed import needed

pytestmark = pytest.mark.oracle
accelerate = needed("accelerate")
VALID = Path(__file__).parents[1] / "foreign/valid"


def test_the_table_of_keys_is_what_accelerate_takes() -> None:
    assert written(table()) == files("escala.foreign").joinpath("data/keys/accelerate.json").read_bytes()


def test_options_without_a_value_are_those_that_are_read_so() -> None:
    assert switches() == SWITCHES


def test_nested_typos_are_passed_over_in_silence(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_stratgy: NO_SHARD\n"
    )

    assert environment(launched(tmp_path / "a.yaml"))["FSDP_SHARDING_STRATEGY"] == "FULL_SHARD"


def test_the_launcher_adds_the_prefix_of_fsdp(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  version: 2\n  offload_params: true\n"
    )

    found = environment(launched(tmp_path / "a.yaml"))

    assert (found["FSDP_VERSION"], found["FSDP_OFFLOAD_PARAMS"]) == ("2", "true")


def test_fsdp1_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {}\n")

    assert environment(launched(tmp_path / "a.yaml"))["FSDP_VERSION"] == "1"


@pytest.mark.parametrize(
    ("block", "refused"),
    [
        ("  fsdp_sync_module_states: false\nnum_processes: 2\n", "fsdp_sync_module_states"),
        ("  fsdp_version: 2\n", "num_processes"),
    ],
)
def test_the_launcher_refuses_what_is_called_an_error(tmp_path: Path, block: str, refused: str) -> None:
    (tmp_path / "a.yaml").write_text(f"distributed_type: FSDP\nfsdp_config:\n{block}")

    with pytest.raises(ValueError, match=refused):
        environment(launched(tmp_path / "a.yaml"))


def test_an_unquoted_no_fails(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("distributed_type: FSDP\nnum_processes: 2\nmixed_precision: no\n")

    with pytest.raises(AttributeError):
        environment(launched(tmp_path / "a.yaml"))


def test_megatron_takes_two_context_ranks_and_full_recompute_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accelerate.utils import MegatronLMPlugin

    monkeypatch.setenv("MEGATRON_LM_RECOMPUTE_ACTIVATIONS", "true")

    plugin = MegatronLMPlugin()

    assert plugin.context_parallel_size == 2
    assert (plugin.recompute_granularity, plugin.recompute_num_layers) == ("full", 1)
    assert "recompute_activations" not in plugin.megatron_lm_default_args


def test_keys_beside_a_deepspeed_file_are_those_that_accelerate_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accelerate.utils import DeepSpeedPlugin

    for name in IGNORED_BESIDE_FILE:
        monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", name)
        with pytest.raises(ValueError, match="When using `deepspeed_config_file`"):
            DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": 1}})
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", "zero3_init_flag")
    DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": 1}})


@pytest.mark.parametrize(
    ("name", "value"),
    [("RESHARD_AFTER_FORWARD", "FULL_SHARD"), ("STATE_DICT_TYPE", "LOCAL_STATE_DICT")],
)
def test_fsdp2_refuses_what_is_called_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    from accelerate import FullyShardedDataParallelPlugin

    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv(f"FSDP_{name}", value)

    with pytest.raises(ValueError, match=r"FSDP2|bool|invalid truth"):
        FullyShardedDataParallelPlugin()


@pytest.mark.parametrize("sizes", [{"cp_size": 2, "sp_size": 2}, {"tp_size": 2, "dp_replicate_size": 2}])
def test_meshes_that_are_refused(sizes: dict[str, int]) -> None:
    from accelerate.parallelism_config import ParallelismConfig

    with pytest.raises(ValueError, match=r"exclusive|pure data parallelism"):
        ParallelismConfig(**sizes)


@pytest.mark.parametrize("file", sorted(VALID.glob("accelerate-*.yaml")), ids=lambda file: file.name)
def test_the_launcher_reads_the_valid_files(file: Path) -> None:
    assert environment(launched(file))["ACCELERATE_MIXED_PRECISION"]


FSDP = {name: order for name, order in FSDP2.items() if order.plan.zero == 3}


def spread(writer: Writer, order: Order, folder: Path) -> Mapping[str, str]:
    """The variables that the first node's processes get from the written files."""
    written_files(writer, order, folder)
    nodes = ("--machine_rank", "0", "--main_process_ip", "10.0.0.1", "--main_process_port", "29500")
    return environment(launched(folder / "accelerate.yaml", *(nodes if order.nodes > 1 else ())))


def among(found: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the variables those of this process."""
    for name, value in found.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", FSDP)
def test_plans_become_plugins_of_fsdp2(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import CPUOffloadPolicy

    order, plan = FSDP[name], FSDP[name].plan
    among(spread(writing, order, tmp_path), monkeypatch)

    plugin = FullyShardedDataParallelPlugin()

    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is plan.reshard
    assert isinstance(plugin.cpu_offload, CPUOffloadPolicy) is (plan.offload_params is Offload.CPU)
    assert plugin.activation_checkpointing is (plan.recompute is Recompute.FULL)
    assert plugin.activation_checkpointing_offload is (plan.offload_activations is Offload.CPU)
    assert plugin.transformer_cls_names_to_wrap == ["LlamaDecoderLayer"]


@pytest.mark.parametrize("name", FSDP)
def test_degrees_of_plans_become_a_mesh(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.parallelism_config import ParallelismConfig

    plan = FSDP[name].plan
    among(spread(writing, FSDP[name], tmp_path), monkeypatch)

    mesh = ParallelismConfig()

    assert mesh.total_size in (1, plan.devices)  # 1: FSDP2 shards over all processes
    if mesh.total_size > 1:
        assert mesh.dp_shard_size * mesh.cp_size == plan.shard
        assert mesh.cp_size == plan.cp
    assert (mesh.total_size > 1) is (plan.cp > 1 or plan.shard < plan.dp)


@pytest.mark.parametrize("name", DEEPSPEED)
def test_plans_become_plugins_of_deepspeed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate import DeepSpeedPlugin

    plan = DEEPSPEED[name].plan
    among(spread(writing_deepspeed, DEEPSPEED[name], tmp_path), monkeypatch)

    config = DeepSpeedPlugin().deepspeed_config

    zero = config["zero_optimization"]
    assert zero["stage"] == plan.zero
    assert config["gradient_accumulation_steps"] == plan.micro_batches
    assert zero["offload_optimizer"]["device"] == plan.offload_optimizer.name.lower()
    assert zero["offload_param"]["device"] == plan.offload_params.name.lower()


@pytest.mark.parametrize("name", MEGATRON)
def test_plans_become_plugins_of_megatron(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import MegatronLMPlugin

    plan = MEGATRON[name].plan
    among(spread(writing_megatron, MEGATRON[name], tmp_path), monkeypatch)

    given = MegatronLMPlugin().megatron_lm_default_args

    wanted = {
        "tensor_model_parallel_size": plan.tp,
        "pipeline_model_parallel_size": plan.pp,
        "context_parallel_size": plan.cp,
        "expert_model_parallel_size": plan.ep,
        "num_micro_batches": plan.micro_batches,
        "sequence_parallel": plan.sp,
        "use_distributed_optimizer": plan.zero == 1,
        "optimizer_cpu_offload": plan.offload_optimizer is Offload.CPU,
        "recompute_granularity": "full",
        "recompute_method": "uniform" if plan.recompute is Recompute.FULL else "block",
        "recompute_num_layers": {Recompute.NONE: 0, Recompute.FULL: 1}.get(
            plan.recompute, plan.recompute_layers
        ),
    }
    assert {key: given[key] for key in wanted} == wanted


def test_the_training_script_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from oracles.tiny import Rows, tiny_model

    folder = tiny_model(tmp_path / "model")
    datasets = ModuleType("datasets")
    rows = Rows(["one two three four five six"] * 8)
    given_names = {"load_dataset": lambda *_, **__: rows, "Dataset": Rows, "IterableDataset": Rows}
    vars(datasets).update(given_names, __spec__=ModuleSpec("datasets", None))
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    order = replace(FSDP2["ddp"], model=str(folder), steps=2)
    files = {each.name: each.text for each in writing.write(order)}
    (tmp_path / "launch.sh").write_text(files["launch.sh"])
    (document,) = read_documents(str(tmp_path / "launch.sh"))
    (line,) = launch_lines(document, "accelerate launch", SWITCHES)
    given = {**{name: str(node.value) for name, node in line.arguments.items()}, "block_size": "4"}
    given |= {"use_cpu": "true", "output_dir": str(tmp_path / "output"), "per_device_train_batch_size": "2"}
    monkeypatch.setattr(sys, "argv", ["train.py", *(f"--{name}={value}" for name, value in given.items())])

    exec(compile(files["train.py"], "train.py", "exec"), {"__name__": "__main__"})

    assert (tmp_path / "output/model.safetensors").exists()
