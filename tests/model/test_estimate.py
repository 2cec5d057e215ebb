"""Properties of the whole estimate over the plans of small spaces: identities, limits, directions."""

from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala import catalog
from escala.catalog.networks import network
from escala.model.estimate import Estimate, estimate, time_of
from escala.model.memory import MemoryKinds, Phases
from escala.model.plan import Plan, Plans, Precision, Recompute, Schedule, Split, concatenate
from escala.model.problem import Problem
from escala.model.steptime import StepTime
from escala.model.workload import Lora, Method, Workload
from escala.planning.cells import cells, expand, fill
from escala.planning.space import SpaceLimits, groups
from escala.planning.variants import changed

SAMPLE = 600
# the one term that is a difference: what dispatch adds to the device time
ROUNDED = "time.dispatch_s"


@dataclass(frozen=True)
class Question:
    """A problem by name, so that its plans are drawn once."""

    network: str
    gpu: str
    devices: int
    batch: int
    tokens: int
    engine: str = "pytorch"
    precision: Precision = Precision.BF16
    method: Method = Method.PRETRAIN

    @property
    def problem(self) -> Problem:
        return Problem(
            workload=Workload(
                network=network(self.network),
                sequence_tokens=self.tokens,
                global_batch=self.batch,
                method=self.method,
                lora=Lora() if self.method is Method.LORA else None,
            ),
            cluster=replace(catalog.cluster_for(self.gpu, self.devices)),
            engine=catalog.engine(self.engine),
            assumptions=catalog.assumptions(),
        )


QUESTIONS = (
    Question("llama-3.1-8b", "h100-sxm", 8, 64, 4096),
    Question("llama-3.1-8b", "a100-sxm-80gb", 64, 128, 8192),
    Question("llama-3.1-70b", "h100-sxm", 128, 256, 8192, "megatron-core"),
    Question("gpt3-13b", "v100-sxm2-32gb", 64, 256, 2048, "megatron-2021", Precision.FP16),
    Question("deepseek-v2-lite", "h800-sxm", 32, 128, 4096),
    Question("mixtral-8x7b", "h100-sxm", 32, 64, 4096, "megatron-core"),
    Question("gemma-2-9b", "h100-sxm", 16, 32, 8192, precision=Precision.FP8_TENSORWISE),
    Question("t5-large", "a100-sxm-40gb", 16, 64, 512, "hf-trainer"),
    Question("resnet-50", "a100-sxm-80gb", 8, 1024, 1),
    Question("bert-large", "v100-sxm2-32gb", 8, 256, 512, precision=Precision.FP16),
    Question("llama-3.1-8b", "a100-sxm-80gb", 8, 32, 2048, "hf-bf16", method=Method.LORA),
    Question("qwen2.5-0.5b", "h100-sxm", 1, 16, 2048),
)
by_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q.network} on {q.devices}")


@cache
def plans_of(question: Question) -> Plans:
    """A sample of the space of a question, with every recompute mode, compile and fused loss."""
    problem, rng = question.problem, np.random.default_rng(20_211_114)
    tables = []
    for group in groups(problem, SpaceLimits(precision=question.precision)):
        columns, _ = expand(group, cells(group))
        tables.append(fill(columns, len(columns["dp"]), Plan(precision=question.precision)))
    ways = concatenate(tables)
    ways = ways.take(rng.integers(0, len(ways), SAMPLE))
    may_compile, may_fuse = ("compile" not in problem.engine.lacks, "fused-loss" not in problem.engine.lacks)
    lacks = problem.engine.lacks
    modes = [int(m) for m in Recompute if m.name.lower().replace("_", "-") not in lacks]
    mode = rng.choice(modes, SAMPLE)
    some = rng.integers(1, np.maximum(problem.workload.network.layers // ways.pp, 2))
    return changed(
        ways,
        recompute=mode,
        recompute_layers=np.where(mode == Recompute.FIRST_LAYERS, some, 0),
        compile=rng.integers(0, 1 + may_compile, SAMPLE),
        fused_loss=rng.integers(0, 1 + may_fuse, SAMPLE),
    )


@cache
def estimated(question: Question) -> Estimate:
    return estimate(question.problem, plans_of(question))


def columns_of(found: Estimate) -> dict[str, np.ndarray]:
    """Every number of an estimate by a dotted name."""
    every = {name: getattr(found, name) for name in ("step_s", "mfu", "hfu", "reject")}
    memory = found.memory
    every |= {f"memory.{f.name}": getattr(memory, f.name) for f in fields(memory)[2:]}
    every |= {f"kinds.{f.name}": getattr(memory.kinds, f.name) for f in fields(MemoryKinds)}
    every |= {f"phases.{f.name}": getattr(memory.phases, f.name) for f in fields(Phases)}
    every |= {f"time.{f.name}": getattr(found.time, f.name) for f in fields(StepTime)}
    footprint = {f.name: getattr(found.footprint, f.name) for f in fields(found.footprint)}
    return every | {f"footprint.{name}": value for name, value in footprint.items() if value is not None}


@by_question
def test_terms_add_up_to_the_step(question):
    found = estimated(question)

    total = sum(getattr(found.time, f.name) for f in fields(StepTime))

    assert found.step_s.tolist() == pytest.approx(total.tolist(), rel=1e-12)
    assert (found.step_s == found.time.step_s).all()


@by_question
def test_every_number_is_finite_and_not_negative(question):
    wrong = {
        name: float(column.min())
        for name, column in columns_of(estimated(question)).items()
        if not np.isfinite(column).all() or ((column < 0).any() and name != ROUNDED)
    }

    assert wrong == {}
    assert (estimated(question).step_s > 0).all()
    # exact up to the rounding of the two sums it is the difference of
    assert (estimated(question).time.dispatch_s >= -np.spacing(estimated(question).step_s)).all()


@by_question
@settings(max_examples=15)
@given(rows=st.lists(st.integers(0, SAMPLE - 1), min_size=1, max_size=6))
def test_a_row_of_many_is_a_batch_of_one_bit_by_bit(question, rows):
    many = columns_of(estimated(question))

    for row in rows:
        one = columns_of(estimate(question.problem, plans_of(question).take([row])))
        assert {name: column[0] for name, column in one.items()} == {
            name: column[row] for name, column in many.items()
        }


@by_question
def test_the_order_of_plans_does_not_matter(question):
    backwards = estimate(question.problem, plans_of(question).take(slice(None, None, -1)))

    assert (backwards.step_s[::-1] == estimated(question).step_s).all()
    assert (backwards.memory.needed_bytes[::-1] == estimated(question).memory.needed_bytes).all()


@by_question
def test_plans_of_the_space_break_no_rule_but_memory(question):
    found = estimated(question)

    assert ((found.reject == 0) == (found.memory.verdict < 2)).all()


def with_chip(problem: Problem, **values: float) -> Problem:
    group = problem.cluster.groups[0]
    chip = replace(group, accelerator=replace(group.accelerator, **values))
    return replace(problem, cluster=replace(problem.cluster, groups=(chip,)))


def with_links(problem: Problem, **factors: float) -> Problem:
    links = tuple(
        replace(link, **{name: getattr(link, name) * factor for name, factor in factors.items()})
        for link in problem.cluster.links
    )
    return replace(problem, cluster=replace(problem.cluster, links=links))


def slower_rows(question: Question, other: Problem) -> list[Plan]:
    """Plans that take longer in the other world, beyond rounding."""
    then = time_of(other, plans_of(question)).step_s
    rows = np.flatnonzero(then > estimated(question).step_s * (1 + 1e-12))
    return [plans_of(question)[int(row)] for row in rows]


@by_question
def test_more_network_bandwidth_is_never_slower(question):
    assert slower_rows(question, with_links(question.problem, bytes_per_s=2.0)) == []


@by_question
def test_less_latency_is_never_slower(question):
    assert slower_rows(question, with_links(question.problem, latency_s=0.5)) == []


@by_question
def test_more_memory_bandwidth_is_never_slower(question):
    chip = question.problem.accelerator

    faster = with_chip(question.problem, memory_bytes_per_s=2 * chip.memory_bytes_per_s)

    assert slower_rows(question, faster) == []


@by_question
def test_more_peak_is_never_slower_where_the_bubble_is_a_share_of_the_step(question):
    # all schedules but zero-bubble V, whose bubble depends on how long weight gradients are
    chip = question.problem.accelerator
    names = (f"{name}_flop_per_s" for name in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4"))
    peaks = {name: 2 * getattr(chip, name) for name in names if getattr(chip, name) is not None}

    slower = slower_rows(question, with_chip(question.problem, **peaks))

    assert [plan for plan in slower if plan.schedule is not Schedule.ZERO_BUBBLE_V] == []


@by_question
def test_twice_the_memory_changes_no_step_and_no_need(question):
    chip = question.problem.accelerator

    found = estimate(with_chip(question.problem, memory_bytes=2 * chip.memory_bytes), plans_of(question))

    assert (found.step_s == estimated(question).step_s).all()
    assert (found.memory.needed_bytes == estimated(question).memory.needed_bytes).all()
    assert (found.memory.verdict <= estimated(question).memory.verdict).all()


@by_question
def test_compile_and_fused_loss_cost_neither_time_nor_memory(question):
    # the search relies on it
    lacks, plans = question.problem.engine.lacks, plans_of(question)
    plain = estimate(question.problem, changed(plans, compile=0, fused_loss=0))
    finished = changed(plans, compile=int("compile" not in lacks), fused_loss=int("fused-loss" not in lacks))

    found = estimate(question.problem, finished)

    assert (found.step_s <= plain.step_s * (1 + 1e-12)).all()
    assert (found.memory.needed_bytes <= plain.memory.needed_bytes * (1 + 1e-12)).all()


@by_question
def test_recompute_costs_time_and_full_recompute_costs_most(question):
    plans = plans_of(question)
    none, selective, full = (
        time_of(question.problem, changed(plans, recompute=int(mode), recompute_layers=0)).step_s
        for mode in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    )

    assert (none <= selective * (1 + 1e-12)).all()
    assert (none < full).all()


@by_question
def test_utilisation_is_work_over_peak(question):
    found = estimated(question)

    assert (found.mfu < 1).all()
    assert (found.hfu >= found.mfu).all()


@by_question
def test_rank_alike_layers_give_the_same_step_for_custom_and_even_splits(question):
    layers, rows = question.problem.workload.network.layers, plans_of(question)
    even = (rows.pp > 1) & (rows.split == Split.EVEN) & (layers % (rows.pp * rows.virtual_stages) == 0)
    for row in np.flatnonzero(even)[:5]:
        plan = rows[int(row)]
        stages = plan.pp * plan.virtual_stages
        custom = replace(plan, split=Split.CUSTOM, stage_layers=(layers // stages,) * stages)

        found = estimate(question.problem, Plans.of([plan, custom]))

        assert found.step_s[0] == found.step_s[1]
        assert found.memory.needed_bytes[0] == found.memory.needed_bytes[1]


def test_a_pipeline_takes_its_schedule_from_the_plan():
    question = Question("gpt3-13b", "a100-sxm-80gb", 8, 64, 2048, "megatron-core")
    shape = {"dp": 1, "tp": 1, "pp": 8, "micro_batches": 64}
    plain = Plan(**shape, schedule=Schedule.ONE_F_ONE_B)
    interleaved = Plan(**shape, schedule=Schedule.INTERLEAVED, virtual_stages=5)

    found = estimate(question.problem, Plans.of([plain, interleaved]))

    # a shorter bubble, more in flight
    assert found.time.bubble_s[1] == pytest.approx(found.time.bubble_s[0] / 5, rel=0.02)
    assert found.memory.kinds.activations_bytes[1] > found.memory.kinds.activations_bytes[0]


def test_no_plans_have_an_empty_estimate():
    problem = Problem(
        workload=Workload(network=network("gpt2"), sequence_tokens=1024, global_batch=8),
        cluster=catalog.cluster_for("h100-sxm", 8),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )

    found = estimate(problem, Plans.of([]))

    assert len(found) == len(found.step_s) == len(found.memory.needed_bytes) == 0
