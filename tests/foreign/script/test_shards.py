"""Programs that shard: facts, and each rule with one that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from foreign.script.programs import FSDP, job, rules

FSDP1 = (
    FSDP.replace("import fully_shard, ", "import FullyShardedDataParallel as FSDP, ")
    .replace(
        "fully_shard(model, mp_policy=policy)",
        "model = FSDP(model, device_id=torch.cuda.current_device())",
    )
    .replace("    fully_shard(block, mp_policy=policy)", "    pass")
    .replace("torch.cuda.set_device", 'dist.init_process_group("nccl")\ntorch.cuda.set_device', 1)
    + "dist.destroy_process_group()\n"
)


def test_facts_of_a_script_with_shards(tmp_path: Path) -> None:
    found = job(tmp_path, FSDP)

    assert {name: each.value for name, each in found.facts.items()} == {
        "zero": 3,
        "reshard": True,
        "precision": "bf16",
        "model": "meta-llama/Llama-3.1-8B",
        "optimizer": "AdamW",
        "learning_rate": 1e-4,
    }
    assert rules(found) == []


@pytest.mark.parametrize(
    ("strategy", "zero", "reshard"),
    [("FULL_SHARD", 3, True), ("SHARD_GRAD_OP", 3, False), ("NO_SHARD", 0, None), ("OTHER", None, None)],
)
def test_strategies_of_the_first_fsdp_are_stages(
    tmp_path: Path, strategy: str, zero: int | None, reshard: bool | None
) -> None:
    text = FSDP1.replace("FSDP(model,", f"FSDP(model, sharding_strategy=ShardingStrategy.{strategy},")

    found = job(tmp_path, text)

    assert (found.value("zero"), found.value("reshard")) == (zero, reshard)


def test_axes_of_a_mesh_are_degrees(tmp_path: Path) -> None:
    mesh = 'mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))\n'
    text = "from torch.distributed.device_mesh import init_device_mesh\n" + mesh + FSDP

    assert job(tmp_path, text).value("tp") == 2
    assert rules(job(tmp_path, text, devices=8)) == []
    assert rules(job(tmp_path, text, devices=16)) == ["script-mesh-size"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ["script-fsdp1"]),
        ("torch.cuda.set_device", "print", ["script-device-before-set", "script-fsdp1"]),
        ('with torch.device("meta"):', "if True:", ["script-every-rank-loads", "script-fsdp1"]),
        ('with torch.device("meta"):', "if rank == 0:", ["script-fsdp1"]),
        (
            "FSDP(model,",
            "FSDP(model, auto_wrap_policy=transformer_auto_wrap_policy(transformer_layer_cls={Block}),",
            ["script-policy-called", "script-fsdp1"],
        ),
        (
            "FSDP(model,",
            "FSDP(model, auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={B}),",
            ["script-fsdp1"],
        ),
        (
            "for batch in",
            "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\nfor batch in",
            ["script-fsdp1", "script-whole-states"],
        ),
        (
            "for batch in",
            "keep(model.state_dict())\nfor batch in",
            ["script-fsdp1", "script-whole-states"],
        ),
        (
            "for batch in",
            "if rank == 0:\n    torch.save(model.state_dict(), 'm')\nfor batch in",
            ["script-fsdp1", "script-states-on-one-rank"],
        ),
        (
            "for batch in",
            "states = model.state_dict()\nif rank == 0:\n    torch.save(states, 'm')\nfor batch in",
            ["script-fsdp1", "script-whole-states"],
        ),
        ("for batch in", "optimizer.state_dict()\nfor batch in", ["script-fsdp1"]),
        (
            "for batch in",
            "FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\nfor batch in",
            ["script-fsdp1"],
        ),
    ],
)
def test_faults_of_shards_are_found(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in FSDP1

    assert sorted(rules(job(tmp_path, FSDP1.replace(old, new, 1)))) == sorted(expected)


def test_ranks_that_each_load_the_model_are_counted(tmp_path: Path) -> None:
    text = FSDP.replace('with torch.device("meta"):', "if True:")

    found = job(tmp_path, text, devices_per_node=8)

    assert [(each.rule, each.what) for each in found.findings] == [
        ("script-every-rank-loads", "each of 8 ranks loads the whole model before it is sharded")
    ]
    assert rules(job(tmp_path, text, devices_per_node=1)) == []
