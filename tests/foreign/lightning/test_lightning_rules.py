"""Each rule of Lightning with a Trainer that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.jobs import read_job

HEAD = "import lightning as L\nfrom lightning.pytorch.strategies import *\n"


def rules(folder: Path, arguments: str, beside: str = "", **given: Value) -> list[str]:
    (folder / "train.py").write_text(f"{HEAD}{beside}\ntrainer = L.Trainer({arguments})\n")
    job = read_job([str(folder / "train.py")], given, {})
    return [each.rule for each in job.findings]


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        ("lightning-strategy", "strategy='dpp'", "strategy='DDP'"),
        ("lightning-strategy-gone", "strategy='ddp_sharded'", "strategy='ddp_spawn'"),
        ("lightning-unused-parameters", "strategy='ddp_find_unused_parameters_true'", "strategy='ddp'"),
        ("lightning-precision", "precision='bf16-mix'", "precision='bf16-mixed'"),
        ("lightning-precision", "precision='fp16'", "precision=16"),
        (
            "lightning-precision-mesh",
            "strategy=ModelParallelStrategy(), precision='16-mixed'",
            "strategy=ModelParallelStrategy(), precision='bf16-mixed'",
        ),
        ("lightning-fsdp1", "strategy='fsdp'", "strategy=ModelParallelStrategy()"),
        (
            "lightning-fsdp-accelerator",
            "strategy='fsdp', accelerator='cpu'",
            "strategy='fsdp', accelerator='gpu'",
        ),
        (
            "lightning-fsdp-clip",
            "strategy='fsdp', gradient_clip_val=1.0",
            "strategy='fsdp', gradient_clip_val=1.0, gradient_clip_algorithm='value'",
        ),
        (
            "lightning-fsdp-accumulation",
            "strategy='fsdp', accumulate_grad_batches=4",
            "strategy='ddp', accumulate_grad_batches=4",
        ),
        (
            "lightning-mesh",
            "devices=8, strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2)",
            "devices=8, strategy=ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=2)",
        ),
        (
            "lightning-mesh",
            "devices=8, strategy=FSDPStrategy(device_mesh=(2, 2))",
            "devices=8, strategy=FSDPStrategy(device_mesh=(2, 4))",
        ),
        (
            "lightning-sync-batchnorm",
            "devices=8, strategy='deepspeed_stage_2', sync_batchnorm=True",
            "devices=8, strategy='ddp', sync_batchnorm=True",
        ),
        (
            "lightning-sync-batchnorm-alone",
            "devices=1, sync_batchnorm=True",
            "devices=2, sync_batchnorm=True",
        ),
        ("lightning-deepspeed-pin", "strategy='deepspeed_stage_2'", "strategy='ddp'"),
        ("misspelt-key", "num_node=2", "num_nodes=2"),
        ("removed-key", "gpus=8", "devices=8"),
        ("removed-key", "replace_sampler_ddp=False", "use_distributed_sampler=True"),
        (
            "misspelt-key",
            "strategy=ModelParallelStrategy(tensor_paralel_size=2)",
            "strategy=ModelParallelStrategy()",
        ),
        ("wrong-type", "accumulate_grad_batches='four'", "accumulate_grad_batches=4"),
    ],
)
def test_each_rule_speaks_of_what_breaks_it_and_not_of_what_nearly_does(
    tmp_path: Path, rule: str, wrong: str, right: str
) -> None:
    assert rule in rules(tmp_path, wrong)
    assert rule not in rules(tmp_path, right)


def test_an_8_bit_optimizer_is_found_under_fsdp_alone(tmp_path: Path) -> None:
    optimizer = "optimizer = bnb.optim.AdamW8bit(model.parameters())"

    assert "lightning-fsdp-8bit" in rules(tmp_path, "strategy='fsdp'", optimizer)
    assert "lightning-fsdp-8bit" not in rules(tmp_path, "strategy='ddp'", optimizer)


@pytest.mark.parametrize(
    ("arguments", "beside", "is_found"),
    [
        ("devices=8, use_distributed_sampler=False", "loader = DataLoader(data)", True),
        ("devices=1, use_distributed_sampler=False", "loader = DataLoader(data)", False),
        (
            "devices=8, use_distributed_sampler=False",
            "DataLoader(data, sampler=DistributedSampler(data))",
            False,
        ),
        (
            "devices=8, use_distributed_sampler=False",
            "class Data(IterableDataset): ...\nDataLoader(Data())",
            False,
        ),
        ("devices=8, use_distributed_sampler=False", "from data import loader", False),
    ],
)
def test_samples_of_all_ranks_are_the_same_without_a_sampler(
    tmp_path: Path, arguments: str, beside: str, is_found: bool
) -> None:
    assert ("lightning-sampler" in rules(tmp_path, arguments, beside)) == is_found


@pytest.mark.parametrize(
    ("strategy", "module", "is_found"),
    [
        ("'fsdp'", "class M(L.LightningModule): ...", True),
        ("FSDPStrategy(auto_wrap_policy={Block})", "class M(L.LightningModule): ...", False),
        (
            "'fsdp'",
            "class M(L.LightningModule):\n    def configure_model(self): self.a = wrap(self.a)",
            False,
        ),
        ("'fsdp'", "from model import M", False),
    ],
)
def test_a_model_that_nobody_cuts_is_gathered_whole(
    tmp_path: Path, strategy: str, module: str, is_found: bool
) -> None:
    assert ("lightning-fsdp-one-unit" in rules(tmp_path, f"strategy={strategy}", module)) == is_found


def test_the_change_of_a_removed_strategy_writes_the_one_that_is_left(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"{HEAD}trainer = L.Trainer(strategy='fsdp_native')\n")

    [found] = [
        each for each in read_job([str(file)], {}, {}).findings if each.rule == "lightning-strategy-gone"
    ]

    [edit] = found.edits
    text = file.read_text()
    assert (
        text[: edit.start] + edit.text + text[edit.end :] == f'{HEAD}trainer = L.Trainer(strategy="fsdp")\n'
    )
