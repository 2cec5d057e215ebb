import json
from dataclasses import replace
from pathlib import Path

import pytest

from escala.catalog import cluster, cluster_for
from escala.catalog.networks import names, network
from escala.errors import InvalidInput
from escala.formats.record_keys import keys_of, record_of
from escala.model.cluster import Cluster
from escala.model.network import Network
from escala.model.plan import Plan, Recompute, Schedule
from escala.planning.defaults import Question, answerable
from escala.planning.search import Objective
from escala.planning.space import SpaceLimits
from escala.report.planfile import PlanFile, Searched, read_plan, write_last, write_plan

PLAN = Plan(dp=4, zero=3, reshard=True, shard=4, tp=2, sp=True, micro_batch=2, micro_batches=16)


def file_of(net: Network, machines: Cluster, **given: object) -> PlanFile:
    problem, _ = answerable(Question(network=net, cluster=machines, **given))
    searched = Searched(
        limits=SpaceLimits(fixed={"tp": (2, 4), "schedule": (2,)}), objective=Objective.ENERGY, tolerance=0.1
    )
    return PlanFile(problem=problem, plans=(PLAN,), searched=searched, estimate={"step_s": {"value": 1.5}})


def test_a_plan_file_comes_back_as_it_was(tmp_path: Path):
    file = file_of(network("llama-3.1-8b"), cluster_for("h100-sxm", 8), method="lora", total_tokens=1.5e10)

    write_plan(file, tmp_path / "plan.json")

    assert read_plan(tmp_path / "plan.json") == file


def test_a_network_of_the_catalog_stands_by_its_name(tmp_path: Path):
    write_plan(file_of(network("gpt3-175b"), cluster_for("a100-sxm-80gb", 64)), tmp_path / "plan.json")

    keys = json.loads((tmp_path / "plan.json").read_text())

    assert keys["workload"]["network"] == {"catalog": "gpt3-175b"}


def test_a_network_of_the_user_is_written_whole(tmp_path: Path):
    own = replace(network("mixtral-8x7b"), name="our-own", source="here")
    file = file_of(own, cluster_for("h100-sxm", 8))

    write_plan(file, tmp_path / "plan.json")

    assert read_plan(tmp_path / "plan.json").problem.workload.network == own


@pytest.mark.parametrize("name", names())
def test_every_network_survives_as_plain_keys(name: str):
    keys = json.loads(json.dumps(keys_of(network(name))))

    assert record_of(Network, keys, "test") == network(name)


def test_a_cluster_with_several_links_survives_as_plain_keys():
    keys = json.loads(json.dumps(keys_of(cluster("eos"))))

    assert record_of(Cluster, keys, "test") == cluster("eos")


def test_the_last_run_keeps_all_plans_in_order(tmp_path: Path):
    one = file_of(network("llama-3.1-8b"), cluster_for("h100-sxm", 8))
    other = replace(PLAN, recompute=Recompute.FULL, pp=2, schedule=Schedule.INTERLEAVED, virtual_stages=2)
    file = replace(one, plans=(PLAN, other), recommended=1, estimate={})

    write_last(file, tmp_path / "last.json")

    assert read_plan(tmp_path / "last.json") == file


def change(keys: dict, path: str, value: object) -> dict:
    *inner, last = path.split(".")
    table = keys
    for name in inner:
        table = table[name]
    table[last] = value
    return keys


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", "escala/plan-file@9", "this escala reads 'escala/plan-file@1'"),
        ("plann", {}, "unknown key 'plann': did you mean plan"),
        ("plan.tp", "two", "tp is 'two'"),
        ("plan.tensor", 2, "unknown key 'tensor'"),
        ("plan", [], "it has to be an object with keys"),
        ("engine", "pytroch", "did you mean pytorch"),
        (
            "workload.sequence_tokens",
            "long",
            "workload.sequence_tokens is 'long'; it has to be a whole number",
        ),
        ("workload.global_batch", -4, "has to be finite and not negative"),
        ("workload.network", {"catalog": "llama"}, "unknown network 'llama'"),
        ("workload.network", {"name": "x"}, "unknown key 'name'"),
        ("workload.optimizer", 3, "it has to be an object"),
        ("cluster.links", {}, "it has to be a list"),
        ("cluster.site", {}, "lacks 'node_power_ratio'"),
        ("cluster.groups", [{"devices": 8}], "lacks 'accelerator'"),
        ("search.tolerance", 7, "give a number from 0 to 1"),
        ("search.objective", "fame", "choose time, cost, energy"),
        ("search.fix", ["tp=x"], "tp=x is not allowed"),
    ],
)
def test_wrong_keys_are_refused_with_their_place(tmp_path: Path, path: str, value: object, said: str):
    write_plan(file_of(network("llama-3.1-8b"), cluster_for("h100-sxm", 8)), tmp_path / "plan.json")
    keys = change(json.loads((tmp_path / "plan.json").read_text()), path, value)
    (tmp_path / "plan.json").write_text(json.dumps(keys))

    with pytest.raises(InvalidInput) as caught:
        read_plan(tmp_path / "plan.json")

    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 3}', "\x00"])
def test_what_is_no_plan_file_is_refused(tmp_path: Path, text: str):
    (tmp_path / "plan.json").write_text(text)

    with pytest.raises(InvalidInput):
        read_plan(tmp_path / "plan.json")
