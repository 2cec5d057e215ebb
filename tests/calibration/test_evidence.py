"""What the fit moved, what rows count, what they contain, and what single changes gain."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from escala.calibration.contents import assumed_fields, contents, unmeasured_engines
from escala.calibration.evidence import CHIPS, ENGINES, GROUPS, FreeNumber, free_numbers, votes
from escala.calibration.gains import engine_gains, precision_gains
from escala.calibration.reading import Reading
from escala.calibration.scoring import Prediction
from escala.calibration.subsets import is_well_described, scale
from escala.catalog import cluster_for
from escala.catalog.accelerators import accelerator
from escala.catalog.fitted import fitted
from escala.model.interval import Regime

Make = Callable[..., Prediction]


def number(**given: object) -> FreeNumber:
    usual = {"group": CHIPS, "name": "x", "field": "y", "low": 1.0, "high": 1.0, "sd": 0.1, "share": 0.5}
    return FreeNumber(**{**usual, "factor": 1.0, "prior_sd": 0.1, **given})  # type: ignore[arg-type]


def test_every_fitted_number_is_listed_once_in_the_order_of_groups():
    found = free_numbers()
    widths = [each for each in fitted().factors if each.field.startswith("interval_")]

    assert len(found) == len(fitted().factors) - len(widths)
    assert [GROUPS.index(each.group) for each in found] == sorted(GROUPS.index(each.group) for each in found)


def test_a_record_times_its_factor_is_the_number_in_use():
    a100 = next(each for each in free_numbers() if (each.name, each.field) == ("a100", "gemm_efficiency"))

    assert a100.group == CHIPS
    assert a100.low == a100.high
    assert a100.low * a100.factor == pytest.approx(accelerator("a100-sxm-80gb").gemm_efficiency, rel=1e-12)


def test_numbers_of_one_engine_are_apart_from_those_that_engines_share():
    groups = {(each.name, each.field): each.group for each in free_numbers()}

    assert groups["pytorch", "dispatch_s"] == ENGINES
    assert groups["all", "step_overhead_s"] != ENGINES


def test_distance_is_counted_in_prior_standard_deviations_of_the_logarithm():
    assert number(factor=math.exp(-0.3), prior_sd=0.15).moved == pytest.approx(2.0, rel=1e-12)


def test_repeats_are_one_vote_and_a_source_has_at_most_sixty(reading: Reading):
    plain = replace(reading, imputed=(), regime=Regime.SMALL)
    many = [replace(plain, configuration=str(i), group="many") for i in range(100)]
    repeated = [replace(plain, configuration="same", group="few") for _ in range(5)]
    found = votes([*many, *repeated])

    assert found.rows == 105
    assert found.configurations == 101
    assert found.votes == pytest.approx(60 + 1, rel=1e-12)
    assert found.capped == ("many",)


def test_a_row_counts_for_each_technique_that_it_uses(reading: Reading):
    memory = replace(reading, step_s=None, memory_bytes=1.0, group="other")
    low = replace(reading, row=replace(reading.row, trust="low"))
    found = {each.name: each for each in contents([reading, memory, low])}

    assert (found["data parallelism, whole states"].timed, found["full recompute"].timed) == (1, 1)
    assert (found["full recompute"].weighed, found["full recompute"].groups) == (1, 2)
    assert found["pipeline"].timed == 0


def test_engines_without_a_timed_row_are_named(reading: Reading):
    assert reading.problem.engine.name not in unmeasured_engines([reading])
    assert reading.problem.engine.name in unmeasured_engines([replace(reading, step_s=None)])


def test_assumed_fields_are_counted_the_most_frequent_first(reading: Reading):
    rows = [replace(reading, imputed=names) for names in (("link",), ("link", "batch"), ())]

    assert list(assumed_fields(rows).items()) == [("link", 2), ("batch", 1)]


@pytest.mark.parametrize(
    ("change", "is_well"),
    [
        ({}, True),
        ({"imputed": ("link", "device memory", "recompute")}, True),
        ({"imputed": ("layout",)}, False),
        ({"arch": "moe"}, False),
        ({"regime": Regime.SLOW}, False),
        ({"regime": Regime.ADAPTED}, False),
    ],
)
def test_a_well_described_row_is_dense_printed_and_modern(
    reading: Reading, change: dict[str, object], is_well: bool
):
    assert is_well_described(replace(reading, **{"imputed": (), **change})) is is_well  # type: ignore[arg-type]


def of_size(reading: Reading, devices: int) -> Reading:
    cluster = cluster_for("h100-sxm", devices)
    return replace(reading, problem=replace(reading.problem, cluster=cluster))


@pytest.mark.parametrize(
    ("devices", "name"),
    [(1, "1 device"), (8, "2 to 8 devices"), (16, "9 to 64 devices"), (4104, "more than 4,096 devices")],
)
def test_sizes_are_named_up_to_and_including_their_end(reading: Reading, devices: int, name: str):
    assert scale(of_size(reading, devices)) == name


def run(predicted: Make, published: float, step: float, precision: str, framework: str) -> Prediction:
    made = predicted(published, step, source="CSC ml-benchmarks", arch="cnn")
    row = replace(made.reading.row, precision=precision, framework=framework)
    return replace(made, reading=replace(made.reading, row=row))


def test_a_precision_gains_over_the_row_that_is_alike_in_all_else(predicted: Make):
    ddp, other = "PyTorch DDP, PyTorch 2.0", "PyTorch DDP, PyTorch 2.3"
    rows = [
        run(predicted, 4.0, 4.0, "fp32", ddp),
        run(predicted, 2.0, 1.0, "fp16", ddp),
        run(predicted, 1.0, 1.0, "fp16", other),  # no fp32 row of this version: no pair
    ]
    (gain,) = precision_gains(rows)

    assert (gain.of, gain.over, gain.pairs) == ("fp16", "fp32", 1)
    assert gain.published == pytest.approx(2.0, rel=1e-12)
    assert gain.predicted == pytest.approx(4.0, rel=1e-12)


def test_gains_of_pairs_are_their_geometric_mean(predicted: Make):
    versions = ("PyTorch 2.0", "PyTorch 2.3")
    rows = [run(predicted, 4.0, 1.0, "fp32", f"PyTorch DDP, {each}") for each in versions]
    rows += [
        run(predicted, t, 1.0, "fp32", f"Horovod, {v}") for t, v in zip((1.0, 4.0), versions, strict=True)
    ]
    (gain,) = engine_gains(rows)

    assert (gain.of, gain.over, gain.pairs) == ("Horovod", "PyTorch DDP", 2)
    assert gain.published == pytest.approx(math.sqrt(4.0 * 1.0), rel=1e-12)
