"""Accelerate itself: its keys are those of the table, and its launcher reads what is written."""

from importlib.resources import files
from pathlib import Path

import pytest

from escala.foreign.accelerate.reading import SWITCHES
from escala.foreign.accelerate.rules import IGNORED_BESIDE_FILE
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
