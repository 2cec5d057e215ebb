"""What may be fitted: names that exist, few numbers for one engine, and the record where nothing moves."""

import math
import tomllib
from collections import Counter
from dataclasses import fields
from importlib.resources import files
from typing import Any

import pytest

from escala import catalog
from escala.calibration import Reading, read, read_rows
from escala.calibration.free import Free, free_parameters
from escala.catalog.accelerators import accelerator, accelerator_quantities, accelerators
from escala.catalog.engines import engines
from escala.catalog.networks import network
from escala.model.assumptions import Assumptions
from escala.model.cluster import Accelerator
from escala.model.engine import EngineTime
from escala.model.problem import Problem
from escala.model.workload import Workload

FREE = free_parameters()
DATA = files("escala.catalog") / "data"
OWNERS = {"accelerator": Accelerator, "engine": EngineTime, "assumption": Assumptions}
# Listed before the rows that will decide them: no shipped row runs on these yet.
UNSEEN = {"tpu-v7x", "internevo", "hf-bf16"}
MOST_OF_ONE_ENGINE = 3


def named(number: Free) -> str:
    return number.name


def chips_of(number: Free) -> list[str]:
    return [name for name in accelerators() if {name, accelerator(name).architecture} & set(number.names)]


def problem_of(number: Free) -> Problem:
    """A problem that the number touches."""
    has_it = [
        n for n in chips_of(number) or ["h100-sxm"] if getattr(accelerator(n), number.field, 0) is not None
    ]
    chip = has_it[0] if number.of == "accelerator" else "h100-sxm"
    engine = number.names[0] if number.of == "engine" and number.names else "pytorch"
    return Problem(
        workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=1024, global_batch=8),
        cluster=catalog.cluster_for(chip, 8),
        engine=catalog.engine(engine),
        assumptions=catalog.assumptions(),
    )


def value(number: Free, problem: Problem) -> float:
    owner = {"accelerator": problem.accelerator, "engine": problem.engine.time}.get(
        number.of, problem.assumptions
    )
    return float(getattr(owner, number.field))


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def record(number: Free, problem: Problem) -> float:
    """The value in the catalog's own files."""
    if number.of == "engine":
        return float(table(f"engines/{problem.engine.name}")["time"][number.field]["value"])
    if number.of == "assumption":
        return float(table("assumptions")[number.field]["value"])
    chip = problem.accelerator
    family = table("accelerators/architectures")[chip.architecture]
    own: dict[str, Any] = {}
    for file in (DATA / "accelerators" / "devices").iterdir():
        own |= tomllib.loads(file.read_text(encoding="utf-8")).get(chip.name, {})
    return float((own.get(number.field) or family[number.field])["value"])


def test_no_number_is_listed_twice():
    assert [name for name, times in Counter(map(named, FREE)).items() if times > 1] == []


@pytest.mark.parametrize("number", FREE, ids=named)
def test_field_and_names_exist_and_the_prior_is_a_width(number: Free):
    known = {"engine": set(engines()), "assumption": set()}
    known["accelerator"] = {each for n in accelerators() for each in (n, accelerator(n).architecture)}

    assert number.field in {field.name for field in fields(OWNERS[number.of])}
    assert set(number.names) <= known[number.of]
    assert 0 < number.sd <= 1


def test_at_most_three_numbers_belong_to_one_engine():
    """Numbers that several kinds of engines share are not theirs."""
    own = Counter(number.names for number in FREE if number.of == "engine" and number.names)

    assert {names: count for names, count in own.items() if count > MOST_OF_ONE_ENGINE} == {}


def test_no_value_is_moved_by_two_numbers():
    """The data could not tell them apart."""
    moved = Counter(
        (number.of, number.field, name)
        for number in FREE
        for name in (chips_of(number) if number.of == "accelerator" else number.names) or ("all",)
    )

    assert [key for key, times in moved.items() if times > 1] == []
    assert [key for key in moved if key[2] != "all" and (*key[:2], "all") in moved] == []


def test_every_number_touches_a_published_row_but_those_that_say_so():
    problems = {r.problem for r in map(read, read_rows().rows) if isinstance(r, Reading)}

    idle = {number for number in FREE if not any(number.touches(problem) for problem in problems)}

    assert {name for number in idle for name in number.names} == UNSEEN


@pytest.mark.parametrize("number", FREE, ids=named)
def test_zero_is_the_value_of_the_record(number: Free):
    problem = problem_of(number)

    assert number.touches(problem)
    assert value(number, number.on(problem, 0.0)) == pytest.approx(record(number, problem), rel=1e-12)


@pytest.mark.parametrize("number", FREE, ids=named)
def test_a_logarithm_is_a_factor_on_one_field(number: Free):
    problem = problem_of(number)

    there = number.on(problem, math.log(1.5))

    assert value(number, there) == pytest.approx(1.5 * record(number, problem), rel=1e-12)


@pytest.mark.parametrize("number", FREE, ids=named)
def test_the_factor_that_the_catalog_holds_changes_nothing(number: Free):
    problem = problem_of(number)

    again = number.on(problem, math.log(number.present))

    assert value(number, again) == pytest.approx(value(number, problem), rel=1e-12)


def test_a_number_of_other_software_or_devices_touches_nothing():
    problem = problem_of(FREE[0])
    numbers = [
        Free(name="a", of="engine", names=("maxtext",), field="gemm_level", sd=1.0),
        Free(name="b", of="accelerator", names=("tpu",), field="gemm_efficiency", sd=1.0),
    ]

    assert not any(number.touches(problem) for number in numbers)


def test_a_device_without_the_kernel_has_no_number_of_it():
    chip = "v100-sxm2-32gb"
    number = Free(name="a", of="accelerator", names=(), field="flash2_efficiency", sd=1.0)
    problem = Problem(
        workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=1024, global_batch=8),
        cluster=catalog.cluster_for(chip, 8),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )

    assert "flash2_efficiency" not in accelerator_quantities(chip)
    assert not number.touches(problem)
    assert number.on(problem, 1.0) is problem
