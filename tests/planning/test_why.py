from dataclasses import replace
from functools import cache

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.search import search
from escala.planning.simplicity import FAMILIES
from escala.planning.space import SpaceLimits
from escala.planning.why import FamilyAnswer, families, leanest, resized, smallest

EVERYTHING = SpaceLimits()
NAMES = ["single", "ddp", "zero-1", "zero-2", "zero-3", "hsdp", "tp", "pp", "cp", "ep"]


def question(name: str, gpu: str, devices: int, batch: int, tokens: int, engine: str = "pytorch") -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=tokens, global_batch=batch),
        cluster=catalog.cluster_for(gpu, devices),
        engine=catalog.engine(engine),
        assumptions=catalog.assumptions(),
    )


QUESTIONS = {
    "all may fit": question("llama-3.2-1b", "h100-sxm", 8, 64, 4096),
    "sharding is needed": question("llama-3.1-8b", "h100-sxm", 8, 64, 4096),
    "nothing fits": question("llama-3.1-405b", "a100-sxm-80gb", 8, 8, 8192),
    "experts": question("qwen3-30b-a3b", "h100-sxm", 16, 64, 4096),
    "images": question("resnet-50", "a100-sxm-80gb", 8, 1024, 1),
    "an encoder": question("bert-large", "a100-sxm-80gb", 8, 512, 512),
    "two stacks": question("t5-large", "a100-sxm-80gb", 8, 64, 512),
    "one device": question("qwen2.5-0.5b", "h100-sxm", 1, 8, 2048),
    "an odd batch": question("llama-3.2-1b", "h100-sxm", 8, 9, 4096),
    "DeepSpeed": question("llama-3.2-1b", "a100-sxm-80gb", 8, 64, 4096, "deepspeed"),
}


@cache
def answers(name: str) -> dict[str, FamilyAnswer]:
    problem = QUESTIONS[name]
    return {each.family: each for each in families(problem, EVERYTHING, search(problem))}


@pytest.mark.parametrize("name", QUESTIONS)
def test_all_ten_families_are_answered_with_a_reason(name):
    assert list(answers(name)) == NAMES == [family.name for family in FAMILIES]
    assert all(each.why.strip() and each.title for each in answers(name).values())


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_family_has_either_seconds_or_a_shortage_or_neither(name):
    for each in answers(name).values():
        assert each.step_s is None or each.short_bytes is None, each
        assert (each.step_s is None) == (each.step_ratio is None), each
        assert each.plan is not None or each.step_s is None, each


def test_a_sequence_too_short_for_context_parallelism_is_the_reason():
    short = question("llama-3.2-1b", "h100-sxm", 8, 64, 1024)

    found = {each.family: each.why for each in families(short, EVERYTHING, search(short))}

    assert found["cp"] == "planned from 1,024 tokens a rank on, and a sequence has 1,024"
    assert "1,024 tokens a rank" not in answers("all may fit")["cp"].why


def test_the_recommended_plan_answers_for_its_families():
    recommended = [each for each in answers("all may fit").values() if each.why == "recommended"]

    assert recommended
    assert all(each.step_ratio == 1.0 for each in recommended)


def test_what_is_slower_says_by_how_much_and_which_term():
    slower = [each for each in answers("all may fit").values() if each.step_ratio and each.step_ratio > 1.01]

    assert slower
    for each in slower:
        assert "% slower: " in each.why, each.why


def test_what_is_too_big_says_how_much_is_missing_and_what_fills_the_device():
    # 8B parameters * 18 bytes are 135 GiB on every device
    ddp = answers("sharding is needed")["ddp"]

    assert ddp.short_bytes is not None
    assert ddp.short_bytes > 50 * 2**30
    assert "does not fit by" in ddp.why
    assert "optimizer state" in ddp.why


def test_when_nothing_fits_no_family_has_seconds():
    assert all(each.step_s is None for each in answers("nothing fits").values())


def test_dense_networks_have_no_experts_to_spread():
    assert answers("sharding is needed")["ep"].why == "the network has no experts"


def test_images_have_no_tensors_to_split():
    assert answers("images")["tp"].why == "the network is no transformer"


def test_one_device_needs_more_for_anything_else():
    assert {answers("one device")[name].why for name in NAMES[1:9]} == {"needs more than one device"}


def test_an_odd_batch_is_not_divided_by_eight_replicas():
    assert "8 replicas do not divide the global batch 9" in answers("an odd batch")["zero-3"].why


def test_what_the_engine_lacks_is_named():
    assert answers("DeepSpeed")["tp"].why == "the engine deepspeed cannot do it"


def test_a_single_device_of_many_leaves_the_others_idle():
    assert answers("all may fit")["single"].why == "fits, but leaves the other devices idle"


def test_the_leanest_plan_of_a_family_needs_no_more_than_its_best():
    problem = QUESTIONS["sharding is needed"]
    best = answers("sharding is needed")["zero-3"].plan
    least = leanest(problem, smallest(problem, EVERYTHING), "zero-3")

    assert best is not None
    assert least is not None
    assert least.plans[0].micro_batch <= best.micro_batch
    assert least.memory.needed_bytes[0] <= problem.accelerator.memory_bytes


def test_a_family_without_layout_has_no_leanest_plan():
    images = QUESTIONS["images"]

    assert leanest(images, smallest(images, EVERYTHING), "tp") is None


def test_a_smaller_cluster_keeps_its_nodes():
    cluster = QUESTIONS["experts"].cluster

    assert resized(cluster, 4).devices == 4
    assert resized(cluster, 4).devices_per_node == 4
    assert resized(cluster, 16) == cluster


def test_a_narrowed_space_narrows_the_families():
    problem = QUESTIONS["all may fit"]
    limits = SpaceLimits(fixed={"tp": (1,), "pp": (1,), "cp": (1,)})

    found = {each.family: each for each in families(problem, limits, search(problem, limits))}

    assert found["tp"].plan is None
    assert found["tp"].why
    assert isinstance(found["zero-3"].plan, Plan)


def test_reasons_hold_for_another_memory_size():
    problem = QUESTIONS["all may fit"]
    group = problem.cluster.groups[0]
    small = replace(group, accelerator=replace(group.accelerator, memory_bytes=12 * 2**30))
    tight = replace(problem, cluster=replace(problem.cluster, groups=(small,)))

    found = {each.family: each for each in families(tight, EVERYTHING, search(tight))}

    # 1.24 B parameters * 18 bytes = 20.7 GiB
    assert "does not fit by" in found["ddp"].why
    assert found["zero-3"].step_s is not None
