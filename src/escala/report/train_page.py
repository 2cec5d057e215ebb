"""A training run as a page: how it learned, predicted beside measured. Computes nothing."""

from collections.abc import Iterator, Sequence

from escala.measurement.profile.record import Prediction
from escala.measurement.verify import Verified
from escala.report.line_plot import STYLE, Line, line_plot
from escala.report.numbers import count, in_percent, seconds, span
from escala.report.page import figures, page, paragraph, section, table
from escala.report.train_text import cause_lines, shown_loss
from escala.report.verify_text import SHOW
from escala.training.conclude import Trained
from escala.training.steprecord import StepRecord
from escala.units import percent, show_si


def train_page(given: Trained, records: Sequence[StepRecord]) -> str:
    """The page of a run and its steps."""
    return page(f"{given.network}: {given.plan_title}", STYLE, _parts(given, records))


def _parts(given: Trained, records: Sequence[StepRecord]) -> Iterator[str]:
    state = "interrupted after" if given.is_interrupted else "trained"
    yield paragraph(
        f"{state} {count(given.steps)} steps of {count(given.samples)} samples; escala {given.escala}"
    )
    yield figures(_figures(given))
    yield section(
        "Loss", line_plot("loss by step", _losses(records)), "nats per target, mean of a global batch"
    )
    yield section(
        "Step time",
        line_plot("seconds by step", [Line(name="seconds", points=_points(records, "step_s"))]),
        "seconds of each step; steps under the profiler are slower",
    )
    if given.verified is not None:
        parts = None if given.profile is None else given.profile.predicted
        yield section("Predicted and measured", _compared(given.verified, parts), "80 % intervals")
    said = [*cause_lines(given.cause)]
    said += [] if given.profile is None else [given.profile.verdict.told]
    yield from map(paragraph, (*said, *given.notes, *given.unsaid))


def _figures(given: Trained) -> Iterator[tuple[str, str]]:
    if given.last_loss is not None:
        yield "loss", shown_loss(given.last_loss)
    if given.held_out_loss is not None:
        yield "held-out loss", shown_loss(given.held_out_loss)
    run = given.run
    if run is not None and run.step is not None:
        yield "step", seconds(run.step.median_s)
    if run is not None and run.tokens_per_s is not None:
        yield "rate", show_si(run.tokens_per_s.value, "tok/s")
    if run is not None and run.mfu is not None:
        yield "MFU", percent(run.mfu.value)


def _losses(records: Sequence[StepRecord]) -> list[Line]:
    held_out = tuple(
        (float(each.step), each.held_out_loss) for each in records if each.held_out_loss is not None
    )
    return [Line(name="training", points=_points(records, "loss")), Line(name="held out", points=held_out)]


def _points(records: Sequence[StepRecord], field: str) -> tuple[tuple[float, float], ...]:
    return tuple((float(each.step), float(getattr(each, field))) for each in records)


def _compared(given: Verified, parts: Prediction | None) -> str:
    heads = ("", "predicted", "80 % interval", "measured", "error")
    return table(heads, _rows(given, parts))


def _rows(given: Verified, parts: Prediction | None) -> Iterator[tuple[str, ...]]:
    for each in given.compared:
        show = SHOW[each.unit]
        inside = "inside" if each.is_inside else "outside"
        error = f"{in_percent(each.error, '+')} %\n{inside}"
        yield each.quantity, show(each.predicted), span(each.low, each.high, show), show(each.recorded), error
        if each.quantity == "step time" and parts is not None:
            yield from _part_rows(parts)


def _part_rows(given: Prediction) -> Iterator[tuple[str, ...]]:
    for each in given.parts:
        if each.predicted_s or each.measured_s:
            error = "" if each.error is None else f"{in_percent(each.error, '+')} %"
            measured = "" if each.measured_s is None else seconds(each.measured_s) if each.measured_s else "0"
            predicted = seconds(each.predicted_s) if each.predicted_s else "0"
            yield f"– {each.part}", predicted, "", measured, error
