"""Training scripts: their facts, and each rule with a script that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job

DDP = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

STEPS = 4


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    model = DDP(Model().cuda(device), device_ids=[device])
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=4, pin_memory=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x.cuda(device), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            torch.save(model.state_dict(), "model.pt")
    dist.destroy_process_group()
"""
ACCUMULATING = """        for i, (x, y) in enumerate(loader):
            loss = model(x.cuda(device), y)
            loss.backward()
            if (i + 1) % STEPS == 0:
                optimizer.step()
                optimizer.zero_grad()
"""
FSDP = """import os
import functools
import torch
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from transformers import AutoModelForCausalLM

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("meta"):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for block in model.model.layers:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FSDP1 = (
    FSDP.replace("import fully_shard, ", "import FullyShardedDataParallel as FSDP, ")
    .replace(
        "fully_shard(model, mp_policy=policy)",
        "model = FSDP(model, device_id=torch.cuda.current_device())",
    )
    .replace("    fully_shard(block, mp_policy=policy)", "    pass")
)
ACCELERATE = """from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
HEAD = "import torch\n"
INNER = """            for micro in range(STEPS):
                loss = model(x.cuda(device), y)
                loss.backward()
"""
LOOP = """for i, x in enumerate(loader):
    model(x).backward()
    if i % 8 == 7:
        opt.step()
        opt.zero_grad()
"""
GROUP = """import torch
torch.distributed.init_process_group("nccl")
{line}
torch.distributed.destroy_process_group()
"""
ARGUMENT = """import argparse
import torch
p = argparse.ArgumentParser()
p.add_argument("{argument}", type=int)
"""


def job(folder: Path, text: str, launch: str = "", **given: Value) -> Job:
    (folder / "train.py").write_text(text)
    paths = [str(folder / "train.py")]
    if launch:
        (folder / "run.sh").write_text(launch)
        paths.append(str(folder / "run.sh"))
    return read_job(paths, given, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


def lines(text: str, found: Job) -> list[str]:
    rows = text.split("\n")
    return [rows[each.place.line - 1].strip() for each in found.findings if each.place]


def accumulating(text: str) -> str:
    head, _, rest = text.partition("        for x, y in loader:\n")
    return head + ACCUMULATING + "        if rank" + rest.partition("        if rank")[2]


def test_facts_of_a_script_with_replicas(tmp_path: Path) -> None:
    found = job(tmp_path, accumulating(DDP).replace("loss = model(", "loss = torch.compile(model)("))

    assert {name: each.value for name, each in found.facts.items()} == {
        "zero": 0,
        "micro_batch": 16,
        "accumulation": 4,
        "optimizer": "AdamW",
        "learning_rate": 3e-4,
        "compile": True,
    }


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


def test_facts_of_a_script_with_accelerate(tmp_path: Path) -> None:
    found = job(tmp_path, ACCELERATE)

    assert {name: each.value for name, each in found.facts.items()} == {
        "accumulation": 8,
        "precision": "bf16",
    }
    assert rules(found) == []


def test_axes_of_a_mesh_are_degrees(tmp_path: Path) -> None:
    mesh = 'mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))\n'
    text = "from torch.distributed.device_mesh import init_device_mesh\n" + mesh + FSDP

    assert job(tmp_path, text).value("tp") == 2
    assert rules(job(tmp_path, text, devices=8)) == []
    assert rules(job(tmp_path, text, devices=16)) == ["script-mesh-size"]


def test_a_sound_script_has_no_finding(tmp_path: Path) -> None:
    assert rules(job(tmp_path, DDP)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected", "line"),
    [
        ("sampler=sampler, ", "", "script-loader-undivided", "loader = "),
        ("sampler=sampler, ", "shuffle=True, sampler=sampler, ", "script-shuffle-with-sampler", "loader = "),
        ("        sampler.set_epoch(epoch)\n", "", "script-epoch-untold", "sampler = "),
        ("num_workers=4, ", "", "script-loader-alone", "loader = "),
        (", pin_memory=True", "", "script-loader-pageable", "loader = "),
        ("            optimizer.zero_grad()\n", "", "script-gradients-kept", "optimizer.step()"),
        (
            "optimizer.step()\n",
            "optimizer.step()\n            print(loss.item())\n",
            "script-item-each-step",
            "print",
        ),
        ("device_ids=[device]", "find_unused_parameters=True", "script-unused-parameters", "model = "),
        ("    dist.destroy_process_group()\n", "", "script-group-left", "dist.init"),
        ("        if rank == 0:\n    ", "", "script-save-on-all", "torch.save"),
        ("import os\n", "import os\nfrom apex import amp\n", "script-apex-amp", "from apex"),
        (
            "import os\n",
            "import os\nfrom torch.distributed._tensor import DTensor\n",
            "script-module-private",
            "from torch.distributed._tensor",
        ),
        (
            "import os\n",
            "import os\nfrom torch.distributed.pipeline.sync import Pipe\n",
            "script-module-gone",
            "from torch.distributed.pipeline",
        ),
        (
            "import os\n",
            "import os\nfrom numpy import array\n\nx = numpy.ones(3)\n",
            "script-package-unbound",
            "x = ",
        ),
        (
            "    rank =",
            "    torch.manual_seed(0)\n    t = v2.RandomCrop(32)\n    rank =",
            "script-seed-equal",
            "torch.manual",
        ),
        (
            "    loss.backward",
            "    GradScaler()\n            loss.backward",
            "script-scaler-with-bf16",
            "GradScaler()",
        ),
        (
            "model(x.cuda(device), y)",
            "torch.utils.checkpoint.checkpoint(model, x)",
            "script-checkpoint-variant",
            "loss = ",
        ),
    ],
)
def test_each_fault_of_a_script_is_found_at_its_line(
    tmp_path: Path, old: str, new: str, expected: str, line: str
) -> None:
    assert old in DDP
    text = DDP.replace(old, new, 1)

    found = job(tmp_path, text)

    assert rules(found) == [expected]
    assert lines(text, found)[0].startswith(line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DistributedSampler(data)", "DistributedSampler(data, shuffle=False)\n    _ = sampler"),
        ("(data, batch_size=16, sampler=sampler", "(split_dataset_by_node(data, rank, 8), batch_size=16"),
        ("(data, batch_size=16, sampler=sampler", "(val_data, batch_size=16"),
        (
            "optimizer.step()\n",
            "optimizer.step()\n            if epoch % 9 == 0:\n                print(loss.item())\n",
        ),
        (
            '        if rank == 0:\n            torch.save(model.state_dict(), "model.pt")',
            '        torch.save(1, f"{rank}.pt")',
        ),
        ("    rank =", "    torch.manual_seed(device)\n    t = v2.RandomCrop(32)\n    rank ="),
        ("    loss.backward", "    GradScaler(enabled=False)\n            loss.backward"),
        ("import os\n", "import os\nimport numpy\nfrom numpy import array\n\nx = numpy.ones(3)\n"),
        ("model(x.cuda(device), y)", "torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)"),
    ],
)
def test_what_is_nearly_a_fault_is_none(tmp_path: Path, old: str, new: str) -> None:
    assert old in DDP

    assert rules(job(tmp_path, DDP.replace(old, new, 1))) == []


def test_accumulation_that_still_sends_gradients_is_found(tmp_path: Path) -> None:
    text = accumulating(DDP)
    waiting = text.replace(
        "            loss.backward()", "            with model.no_sync():\n                loss.backward()"
    )

    found = job(tmp_path, text)

    assert rules(found) == ["script-accumulation-synchronises"]
    assert lines(text, found) == ["loss.backward()"]
    assert found.findings[0].what == "each micro-batch sends all gradients, 4 times a step"
    assert rules(job(tmp_path, waiting)) == []


def test_accumulation_in_an_inner_loop_is_found(tmp_path: Path) -> None:
    head, _, rest = DDP.partition("            with torch.autocast")
    text = head + INNER + "            optimizer.step()" + rest.partition("            optimizer.step()")[2]

    found = job(tmp_path, text)

    assert found.value("accumulation") == 4
    assert rules(found) == ["script-accumulation-synchronises"]


def test_accumulation_of_one_process_is_told_of_several(tmp_path: Path) -> None:
    assert rules(job(tmp_path, HEAD + LOOP)) == []
    assert rules(job(tmp_path, HEAD + LOOP, devices=4)) == ["script-accumulation-alone"]


def test_the_batch_of_a_loader_is_that_of_a_rank(tmp_path: Path) -> None:
    found = job(tmp_path, DDP, devices=8)

    assert rules(found) == ["script-batch-of-rank"]
    assert "8 ranks make 128 samples" in found.findings[0].why


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (
            "from torch.cuda.amp import autocast, GradScaler\ns = GradScaler()\nc = autocast(enabled=True)\n",
            "from torch.amp import autocast, GradScaler\n"
            's = GradScaler("cuda")\nc = autocast("cuda", enabled=True)\n',
        ),
        (
            "import torch\nx = 'é'; s = torch.cuda.amp.GradScaler()\n",
            "import torch\nx = 'é'; s = torch.amp.GradScaler(\"cuda\")\n",
        ),
        ("from torch.cuda.amp import autocast\nwith autocast(True):\n    pass\n", None),
    ],
)
def test_old_calls_of_amp_are_found_and_rewritten(tmp_path: Path, text: str, changed: str | None) -> None:
    found = job(tmp_path, text)

    assert rules(found) == ["script-amp-superseded"]
    edits = found.findings[0].edits
    for edit in sorted(edits, key=lambda edit: -edit.start):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert (text if edits else None) == changed


def test_new_calls_of_amp_are_none(tmp_path: Path) -> None:
    text = 'import torch\nfrom torch.amp import autocast, GradScaler\ns = torch.amp.GradScaler("cuda")\n'

    assert rules(job(tmp_path, text)) == []


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


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("accumulator", "accumulator", []),
        ("    with accelerator.accumulate(model):", "    if True:", ["script-accumulate-missing"]),
        (
            "accelerator.backward(model(**batch).loss)",
            "model(**batch).loss.backward()",
            ["script-backward-bypasses"],
        ),
    ],
)
def test_calls_of_accelerate_that_only_work_together(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, ACCELERATE.replace(old, new))) == expected


@pytest.mark.parametrize(
    ("nodes", "device", "expected"),
    [
        (1, "dist.get_rank()", []),
        (2, "dist.get_rank()", ["script-global-rank"]),
        (2, 'int(os.environ["RANK"])', ["script-global-rank"]),
        (2, "dist.get_rank() % 8", []),
        (2, 'int(os.environ["LOCAL_RANK"])', []),
    ],
)
def test_the_rank_of_the_job_is_no_device(
    tmp_path: Path, nodes: int, device: str, expected: list[str]
) -> None:
    text = DDP.replace('device = int(os.environ["LOCAL_RANK"])', f"device = {device}")

    assert rules(job(tmp_path, text, nodes=nodes)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model.cuda()", ["script-device-unset"]),
        ('model.to("cuda")', ["script-device-unset"]),
        ("model.to(device)", []),
    ],
)
def test_ranks_that_share_the_default_device_are_found(
    tmp_path: Path, line: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, GROUP.format(line=line))) == expected


@pytest.mark.parametrize(
    ("argument", "launch", "expected"),
    [
        ("--local_rank", "torchrun train.py", ["script-local-rank-argument"]),
        ("--local-rank", "torchrun train.py", ["script-local-rank-argument"]),
        ("--rank", "torchrun train.py", []),
        ("--local-rank", "python -m torch.distributed.launch train.py", ["torchrun-old-launcher"]),
        (
            "--local_rank",
            "python -m torch.distributed.launch train.py",
            ["script-local-rank-spelling", "torchrun-old-launcher"],
        ),
        ("--local_rank", "python -m torch.distributed.launch --use_env train.py", ["torchrun-old-launcher"]),
    ],
)
def test_the_local_rank_is_no_argument_of_torchrun(
    tmp_path: Path, argument: str, launch: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, ARGUMENT.format(argument=argument), launch)) == expected


def test_copies_of_one_process_are_found(tmp_path: Path) -> None:
    assert rules(job(tmp_path, HEAD + "model = torch.nn.DataParallel(model)\n")) == ["script-data-parallel"]
    assert rules(job(tmp_path, HEAD + "model = mine.DataParallel(model)\n")) == []
