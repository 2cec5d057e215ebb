"""`escala trace`, and plans of what it wrote; modules run in tests/measurement/modules."""

import importlib.util
import json
from pathlib import Path

import pytest

from escala.formats.traced_json import write_traced
from escala.model.network import Block, Network, Stack, StackRole
from escala.model.traces import Footprint, Product, Traced

FEW = Footprint(kept_bytes=4096.0, given_bytes=512.0, widest_bytes=1024.0, moved_bytes=16384.0)
TWO = ("--gpus", "2", "--gpu", "h100-sxm")


@pytest.fixture
def written() -> str:
    part = Traced(
        parameters=65536,
        tensors=1,
        launches=10,
        products=(Product(rows=128.0, inner=256.0, outer=256.0),),
        fp32=FEW,
        autocast=FEW,
        bf16=FEW,
    )
    block = Block(name="Block", parts=(part,), norms=0)
    outside = Block(name="outside", parts=(part,), norms=0)
    stack = Stack(
        role=StackRole.MODULE,
        hidden=256,
        blocks=(block,),
        pattern=(0,) * 4,
        final_norm_weights=0,
        outside=outside,
    )
    own = Network(name="own", family="module", stacks=(stack,), traced_tokens=128, max_tokens=128)
    write_traced(own, Path("own.json"))
    return "own.json"


def test_a_written_network_is_planned_and_explained(run, written: str):
    planned = run("plan", written, *TWO, "--global-batch", "8", "-o", "plan.json", "--json")

    document = json.loads(planned.out)
    assert planned.code == 0
    assert document["workload"]["sequence_tokens"] == 128
    assert document["workload"]["parameters"] == 5 * 65536
    tensor = next(each for each in document["families"] if each["name"] == "tp")
    assert tensor["why"] == "the module was traced: its parts are not known to be split"
    assert run("explain", "plan.json").code == 0


def test_samples_that_are_no_rows_of_tokens_take_no_length(run):
    part = Traced(parameters=64, tensors=1, launches=1, fp32=FEW, autocast=FEW, bf16=FEW)
    block = Block(name="Block", parts=(part,), norms=0)
    stack = Stack(
        role=StackRole.MODULE, hidden=8, blocks=(block,), pattern=(0,), final_norm_weights=0, tokens=1
    )
    write_traced(Network(name="shaped", family="module", stacks=(stack,)), Path("shaped.json"))

    result = run("plan", "shaped.json", *TWO, "--seq", "100")

    assert (result.code, result.out) == (2, "")
    assert "--seq 100: shaped takes no row of tokens; leave it out" in result.err


def test_tools_that_load_models_by_name_refuse_it(run, written: str):
    run("plan", written, *TWO, "--global-batch", "8", "-o", "plan.json")

    emitted = run("emit", "plan.json", "--to", "accelerate", "-o", "out")

    assert emitted.code == 1
    assert "a module of your own" in " ".join(emitted.out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seq", "256"), "--seq 256: own was traced with 128 tokens; trace it with --seq 256"),
        (
            ("--precision", "fp8"),
            "own is a traced module, which ran without fp8-tensorwise; give --precision",
        ),
        (("--method", "lora"), "own is a traced module, whose maps are not known, so it gets no adapters"),
        (("--shape", "3,4"), "--shape goes with package.module:function; leave it out"),
        (("--lengths", "p50=4,max=9"), "--lengths goes with one stream of tokens, which own has not"),
    ],
)
def test_what_a_traced_network_does_not_take_is_refused(
    run, written: str, options: tuple[str, ...], said: str
):
    result = run("plan", written, *TWO, *options)

    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trace", "model"), "'model' names no function; write package.module:function or FILE.py:function"),
        (("trace", "a:b", "--seq", "4", "--shape", "3"), "--seq and --shape both say what a sample is"),
        (("trace", "a:b", "--shape", "3,x"), "--shape '3,x' is no shape of one sample"),
        (("check", "plan.json", "--model", "a:b"), "a:b names a function, which is not run here"),
    ],
)
def test_wrong_targets_are_refused_before_anything_runs(run, arguments: tuple[str, ...], said: str):
    Path("plan.json").write_text("{}")

    result = run(*arguments)

    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_the_command_that_installs_it_is_said(run):
    result = run("plan", "a:b", *TWO)

    assert result.code == 3
    assert "pip install 'escala[torch]'" in result.err


@pytest.mark.optional
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="modules are PyTorch's")
def test_a_module_is_traced_written_and_planned(run):
    Path("own_module.py").write_text(
        "from torch import nn\n"
        "print('loading')\n"
        "def make():\n"
        "    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))\n"
    )

    traced = run("trace", "own_module.py:make", "--shape", "16", "-o", "own.json", "--json")
    shown = run("trace", "own_module.py:make", "--shape", "16")
    planned = run("plan", "own_module.py:make", "--shape", "16", *TWO, "--json")

    document = json.loads(traced.out)
    assert (document["schema"], document["parameters"]) == ("escala/trace@1", 3 * 272)
    assert document["flop"] == 3 * 2 * 16 * 16
    assert "816 parameters" in shown.out
    assert shown.longest <= 80
    assert json.loads(planned.out)["workload"]["sample"] == "samples"
    assert run("plan", "own.json", *TWO).code == 0
