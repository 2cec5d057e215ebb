"""Training scripts: their facts, and each rule with a script that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from foreign.script.programs import DDP, HEAD, job, lines, rules

ACCUMULATING = """        for i, (x, y) in enumerate(loader):
            loss = model(x.cuda(device), y)
            loss.backward()
            if (i + 1) % STEPS == 0:
                optimizer.step()
                optimizer.zero_grad()
"""
ACCELERATE = """from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
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


def test_facts_of_a_script_with_accelerate(tmp_path: Path) -> None:
    found = job(tmp_path, ACCELERATE)

    assert {name: each.value for name, each in found.facts.items()} == {
        "accumulation": 8,
        "precision": "bf16",
    }
    assert rules(found) == []


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
