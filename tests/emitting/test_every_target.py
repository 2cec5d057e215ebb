"""Every target with every plan: written and read back whole, or refused with a reason; names do no harm."""

import ast
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from escala.emitting.fits import fits
from escala.emitting.targets import writer_of, writers
from escala.foreign.facts import FACTS
from escala.foreign.jobs import read_job
from escala.foreign.orders import lacking, launch_line
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused, written

HARM = "$(: > harm)"
HOSTILE = f'it\'s "a" {HARM} `: > harm`; : > harm # {{x}} %s \\ & <b>'
LOST: dict[str, frozenset[str]] = {
    "maxtext": frozenset(("compile",)),
    "megatron-bridge": frozenset(("shard",)),
    "tf-config": frozenset(FACTS),
}
"""Facts that the files of a target cannot hold, as its page says."""
STARTS_ESCALA = ("torchrun", "slurm", "kubernetes-trainjob", "kubernetes-jobset", "skypilot")
"""Targets that start `escala train plan.json`, which has the facts of the plan."""


@pytest.mark.parametrize("target", writers())
def test_every_plan_comes_back_or_is_refused(target: str, tmp_path: Path) -> None:
    writer, lost = writer_of(target), LOST.get(target, frozenset())

    for name, order in ORDERS.items():
        folder, with_plan = tmp_path / name, target in STARTS_ESCALA
        assert_written_or_refused(writer, order, folder, lost=lost, with_plan=with_plan)


@pytest.mark.parametrize("name", ["fsdp", "fsdp-ep", "tp-pp-1f1b", "zero-3-offload"])
def test_nearest_plans_come_back(name: str, tmp_path: Path) -> None:
    order = ORDERS[name]

    for found in fits([each.TARGET for each in writers().values()], order):
        if found.nearest is not None:
            target, near = found.target.name, replace(order, plan=found.nearest.plan)
            lost, with_plan = LOST.get(target, frozenset()), target in STARTS_ESCALA
            assert_round_trip(writer_of(target), near, tmp_path / target, lost=lost, with_plan=with_plan)


@pytest.mark.parametrize("target", writers())
def test_some_plan_is_written(target: str) -> None:
    written = [name for name, order in ORDERS.items() if not lacking(writer_of(target).TARGET, order)]

    assert written != []


@pytest.mark.parametrize("target", writers())
def test_files_say_their_plan_and_how_to_launch(target: str) -> None:
    writer = writer_of(target)
    for order in ORDERS.values():
        if lacking(writer.TARGET, order):
            continue
        files = [each for each in writer.write(order) if not each.name.endswith(".json")]
        assert all(f"from plan {order.digest}" in each.text for each in files)
        assert all(launch_line(writer.TARGET, order) in each.text for each in files)
        assert all(each.text.endswith("\n") for each in files)


@pytest.mark.parametrize("target", writers())
def test_names_run_no_command_and_come_back(target: str, tmp_path: Path) -> None:
    writer = writer_of(target)
    first = next(order for order in ORDERS.values() if not lacking(writer.TARGET, order))
    paths = written(writer, replace(first, model=HOSTILE, data=HOSTILE), tmp_path)

    for path in paths:
        text = Path(path).read_text()
        if path.endswith(".py"):
            ast.parse(text)
        for script in scripts(path, text):
            run_by_bash(script, tmp_path)

    assert not (tmp_path / "harm").exists()
    assert read_job(paths, {}, {}).value("model") in (None, HOSTILE, first.problem.workload.network.name)


def scripts(path: str, text: str) -> list[str]:
    """What a shell runs of a file: all of a script, texts of several lines of a manifest."""
    if path.endswith((".sh", ".sbatch")):
        return [text]
    if path.endswith((".yaml", ".yml")):
        return [each for document in yaml.safe_load_all(text) for each in texts(document) if "\n" in each]
    return []


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def run_by_bash(script: str, folder: Path) -> None:
    """Run a script where every program is missing and none complains."""
    quiet = folder / "quiet.sh"
    quiet.write_text("command_not_found_handle() { return 0; }\n")
    settings = {"PATH": "", "BASH_ENV": str(quiet), "DATA": "x", "WEIGHTS": "x"}
    command = [shutil.which("bash") or "bash", "-c", script]
    subprocess.run(command, cwd=folder, env=settings, capture_output=True, timeout=20, check=False)


def test_a_name_that_is_not_quoted_is_seen(tmp_path: Path) -> None:
    run_by_bash(f"train --model {HARM}", tmp_path)

    assert (tmp_path / "harm").exists()
