"""docs/reference/cli.md names every option and every field that a document has."""

from dataclasses import fields
from enum import IntEnum
from pathlib import Path

import click
import msgspec
import pytest

from escala.calibration.curves import Curve
from escala.calibration.leftout import Pair
from escala.calibration.operation_scores import OperationErrors, OperationGroup, OperationScores
from escala.calibration.rows import Fault
from escala.calibration.samples import Errors, Group, WorstRow
from escala.calibration.scores import Scores, Verdicts
from escala.calibration.sweeps import SweepScores
from escala.catalog.facts import Fact
from escala.cli.app import cli
from escala.cli.verb import commands_of
from escala.federated import assess, fairness, forecast, roundrecord, summary
from escala.federated.clientdata import ClientData
from escala.federated.criteria import Criterion, Gauge
from escala.federated.flips import Flip
from escala.federated.levers import Lever
from escala.federated.manifest import Link, Manifest
from escala.federated.sites import Way
from escala.formats import bench_record
from escala.measurement import calibration_record, runrecord, verify
from escala.measurement.bench import ladder
from escala.measurement.job import record as job_record
from escala.measurement.job import spread as job_spread
from escala.measurement.profile import record as profile_record
from escala.measurement.sampling import sample, usage
from escala.measurement.tracing import beside
from escala.measurement.watch import findings, watched
from escala.model import own
from escala.model.plan import CHOICES
from escala.model.scaling import Fit, Loss
from escala.report import (
    answer,
    catalog_view,
    check_answer,
    compare_view,
    doctor,
    emit_view,
    explain_view,
    load_view,
    operations_view,
    reasoning,
    trace_view,
    validate_view,
)
from escala.report.audit_view import Audited
from escala.report.module_view import ModuleView, SubModuleView, UnitView
from escala.report.planwords import FIXABLE, words
from escala.report.privacy_view import OtherWay, PrivacyAnswer, Spent
from escala.training.data.encoders import Encoding
from escala.training.data.files import Origin
from escala.training.data.index import Reached, Shard, TokensIndex
from escala.training.layout_list import Compared, Difference, Verdict
from escala.training.study import Ahead, Point, Scaled

COMMANDS = commands_of(click.Context(cli))
Empty = IntEnum("Empty", [])
TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
MODULES = (
    *(answer, reasoning, emit_view, explain_view, catalog_view, compare_view, load_view),
    *(doctor, validate_view, operations_view),
    *(trace_view, beside),
    check_answer,
    *(bench_record, ladder),
    *(runrecord, verify),
    *(calibration_record, own),
    *(sample, usage, watched, findings),
    *(profile_record, job_record, job_spread),
    assess,
)
RECORDS = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type)
    and value.__module__ == module.__name__
    and hasattr(value, "__dataclass_fields__")
]

EMBEDDED = (
    *(Fact, Fault, Errors, Group, Pair, WorstRow, Scores, Verdicts, SweepScores),
    *(OperationErrors, OperationGroup, OperationScores),
    *(Criterion, Gauge, Flip, Lever, Way),
    *(ModuleView, SubModuleView, UnitView),
    *(Scaled, Point, Ahead, Fit, Loss, Curve, Compared, Verdict, Difference),
)


@pytest.mark.parametrize("record", [*RECORDS, *EMBEDDED], ids=lambda record: record.__name__)
def test_every_field_of_a_document_is_described(record: type):
    assert [field.name for field in fields(record) if f"`{field.name}`" not in TEXT] == []


FEDERATED = (
    *(roundrecord.Round, summary.Simulation, summary.Simulated, summary.Spread, summary.Milestone),
    *(fairness.Fairness, fairness.Coverage, forecast.Forecast, forecast.Family),
    *(PrivacyAnswer, Spent, OtherWay, Audited, ClientData, Manifest, Link),
)


@pytest.mark.parametrize(
    "record",
    [*(TokensIndex, Encoding, Shard, Origin, Reached), *FEDERATED],
    ids=lambda each: each.__name__,
)
def test_every_field_of_a_document_of_the_edge_is_described(record: type[msgspec.Struct]):
    assert [name for name in record.__struct_fields__ if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_is_described(verb: str):
    command = COMMANDS[verb]
    names = [name for option in command.params for name in option.opts if name.startswith("--")]

    assert [name for name in names if name not in TEXT] == []


def test_every_field_that_can_be_fixed_is_listed():
    assert all(name in TEXT for name in FIXABLE)


@pytest.mark.parametrize("name", FIXABLE)
def test_every_value_of_a_choice_is_listed(name: str):
    row = next(
        line for line in TEXT.splitlines() if line.startswith("| `") and f"`{name}`" in line.split("|")[1]
    )

    assert [word for word in words(CHOICES.get(name, Empty)) if word not in row] == []
