"""torchrun's own parser: its options, what it makes of lines, and of the scripts that escala writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from escala.foreign.documents import Syntax, parsed
from escala.foreign.keys import table
from escala.foreign.orders import Order, lacking
from escala.foreign.torchrun import writing
from escala.foreign.torchrun.commands import Launch, launches_of
from escala.foreign.torchrun.reading import read
from foreign.plans import ORDERS
from oracles import torchrun_keys
from oracles.keys import written
from oracles.needed import needed, shellcheck

pytestmark = pytest.mark.oracle
run = needed("torchrun", "torch.distributed.run")
TABLE = Path(__file__).parents[2] / "src/escala/foreign/data/keys/torchrun.json"
WRITTEN = {name: order for name, order in ORDERS.items() if not lacking(writing.TARGET, order)}


def launch_of(text: str) -> Launch:
    [document] = parsed(text, "run.sh", Syntax.SHELL)
    [launch] = launches_of(document)
    return launch


def test_the_table_of_options_is_that_of_the_parser() -> None:
    assert written(torchrun_keys.table()) == TABLE.read_bytes()
    assert table("torchrun").version == "2.13.0"


@pytest.mark.parametrize(
    "line",
    [
        "--nproc-per-node 4 train.py --lr 3",
        "--standalone --nproc_per_node=2 -m pack.train --nnodes 7",
        "--nnode 2 --nproc-per 8 --rdzv-backend c10d --rdzv-endpoint a:29500 --tee 3 train.py",
        "--nnodes=1:4 --max-restarts 2 --master_addr a --master-port 29501 --node_rank 1 train.py -m x",
        "-m pack.train",
        "--no-python bash run.sh --nproc-per-node 9",
    ],
)
def test_a_command_line_is_read_as_the_parser_reads_it(line: str) -> None:
    given = run.get_args_parser().parse_args(line.split())

    launch = launch_of(f"torchrun {line}")

    assert launch.script is not None
    assert [launch.script.text, *(word.text for word in launch.arguments)] == [
        given.training_script,
        *given.training_script_args,
    ]
    for name, node in launch.options.items():
        assert str(getattr(given, name.replace("-", "_"))) == str(node.scalar), name


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("--devices 4 t.py", True),
        ("--nproc 4 t.py", True),
        ("--start-method spwan t.py", True),
        ("--max-restarts many t.py", True),
        ("--nproc-per-node all t.py", True),
        ("--nnodes two t.py", True),
        ("--nproc-per-node cpu t.py", False),
    ],
)
def test_what_is_an_error_here_is_refused_there(line: str, refused: bool) -> None:
    from escala.foreign.findings import Severity
    from escala.foreign.jobs import Job
    from escala.foreign.torchrun.rules import rules_of

    [document] = parsed(f"torchrun {line}", "run.sh", Syntax.SHELL)
    found = list(rules_of(Job(readings=(), facts={}), read(document, None)))

    try:
        run.config_from_args(run.get_args_parser().parse_args(line.split()))
        fails = False
    except (SystemExit, ValueError, RuntimeError):
        fails = True
    assert (any(each.severity is Severity.ERROR for each in found), fails) == (refused, refused)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_parser_takes_the_script_of_a_plan(name: str, tmp_path: Path) -> None:
    order = WRITTEN[name]
    argv = started(order, tmp_path)

    config, _, command = run.config_from_args(run.get_args_parser().parse_args(argv))

    assert (config.min_nodes, config.max_nodes) == (order.nodes, order.nodes)
    assert config.min_nodes * config.nproc_per_node == order.plan.devices
    assert command[:4] == ["-u", "-m", "escala", "train"]
    assert [*command[4:9]] == ["plan.json", "--steps", "1000", "--lr", "0.0003"]


def started(order: Order, folder: Path) -> list[str]:
    """The words that bash hands to torchrun from the script of an order, with weights in their folder."""
    [file] = writing.write(order)
    (folder / file.name).write_text(file.text)
    (folder / order.model).mkdir(parents=True)
    tools = folder / "bin"
    tools.mkdir()
    (tools / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tools / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "MASTER_ADDR": "node0"}
    done = subprocess.run(
        ["bash", str(folder / file.name)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    files = []
    for name, order in WRITTEN.items():
        [file] = writing.write(order)
        files.append(tmp_path / f"{name}.sh")
        files[-1].write_text(file.text)

    done = subprocess.run(
        [shellcheck("torchrun"), *map(str, files)], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.returncode) == ("", 0)


def test_torchrun_runs_a_script_on_two_processes(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import os\nopen('rank' + os.environ['RANK'], 'w').close()\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "t.py"]

    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)

    assert sorted(path.name for path in tmp_path.glob("rank*")) == ["rank0", "rank1"]
