"""Builds the answer to `check`: findings of files, model and devices, then the prediction. Draws nothing."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from escala import __version__
from escala.checking.better import Better, better_plan
from escala.checking.changes import Change, smallest_change
from escala.checking.fixes import Wish, fixed, wishes, write_fixed
from escala.checking.judging import Judged, judged
from escala.checking.machines import Missing
from escala.checking.risks import warnings_of, without_vaguer
from escala.checking.rules import findings_of
from escala.checking.subjects import Subject, chief_of, subject_of
from escala.checking.traffic import flows, on_one_node
from escala.checking.wording import edits_of
from escala.foreign.findings import Finding, Severity, sorted_findings
from escala.foreign.jobs import Job
from escala.model.cluster import Cluster
from escala.model.memory import Verdict, needed_ends
from escala.model.parameters import network_parameters
from escala.planning.defaults import OPTIMIZERS, Assumed
from escala.planning.simplicity import describe
from escala.report.check_answer import (
    CHECK_SCHEMA,
    CheckAnswer,
    DeviceMemoryView,
    EstimateView,
    FactView,
    FileView,
    FindingView,
    FixView,
    HostMemoryView,
    MissingView,
    OneNodeView,
    OtherPlanView,
    RunView,
    TrafficView,
)
from escala.report.check_files import files_of
from escala.report.planwords import plan_keys
from escala.report.shared import (
    VERDICTS,
    AssumptionView,
    Interval,
    calibration_notes,
    terms,
    times,
    tokens_per_step,
)
from escala.units import HOUR_S

MOST_TEXT = 120


def checked(
    job: Job,
    cluster: Cluster | None,
    lacking: Missing | None,
    *,
    total_tokens: float | None = None,
    writes_fix: bool = False,
) -> CheckAnswer:
    """The whole document of `escala check`; with `writes_fix` corrected copies stand beside the files."""
    subject = subject_of(chief_of(job), cluster, lacking, total_tokens=total_tokens)
    found = [*job.findings, *findings_of(subject)]
    own = _judged(subject)
    change = None
    if own is not None:
        found += warnings_of(subject, own)
        change = smallest_change(own) if own.verdict is not Verdict.FITS else None
    findings = sorted_findings(without_vaguer(found))
    return CheckAnswer(
        schema=CHECK_SCHEMA,
        escala=__version__,
        files=tuple(_files(job)),
        findings=tuple(_finding(job, each) for each in findings),
        errors=sum(each.severity is Severity.ERROR for each in findings),
        warnings=sum(each.severity is Severity.WARNING for each in findings),
        facts=tuple(_facts(subject.job)),
        assumptions=tuple(_assumption(each) for each in subject.assumed),
        missing=tuple(MissingView(what=each.what, add=each.add) for each in subject.missing),
        gaps=subject.gaps,
        estimate=None if own is None else _estimate(subject, own, change),
        fix=_fix(subject.job, findings, change) if writes_fix else None,
    )


def _judged(subject: Subject) -> Judged | None:
    if subject.problem is None or subject.plan is None:
        return None
    return judged(subject.problem, subject.plan, subject.second_copy)


def _files(job: Job) -> Iterable[FileView]:
    for reading in (reading for one in (job, *job.parts) for reading in one.readings):
        yield FileView(
            file=reading.document.file,
            name=reading.document.name,
            tool=reading.tool,
            title=reading.title,
            version=reading.version,
            version_is=str(reading.version_is),
        )
    for document in (document for one in (job, *job.parts) for document in one.unread):
        yield FileView(
            file=document.file, name=document.name, tool=None, title=None, version=None, version_is=None
        )


def _facts(job: Job) -> Iterable[FactView]:
    for each in job.facts.values():
        value: Any = list(each.value) if isinstance(each.value, tuple) else each.value
        yield FactView(
            name=each.name, value=value, file=each.place.file, line=each.place.line, said=each.said
        )


def _finding(job: Job, each: Finding) -> FindingView:
    place = each.place
    return FindingView(
        rule=each.rule,
        severity=str(each.severity),
        file=None if place is None else place.file,
        line=0 if place is None else place.line,
        text="" if place is None else _line(job, place.file, place.line),
        what=each.what,
        why=each.why,
        fix=each.fix,
        source=each.source,
        is_fixable=bool(each.edits),
    )


def _line(job: Job, file: str, line: int) -> str:
    """The line of a file, as people look for it."""
    readings = (reading.document for one in (job, *job.parts) for reading in one.readings)
    for document in (*readings, *(document for one in (job, *job.parts) for document in one.unread)):
        lines = document.text.split("\n")
        index = line - document.first_line
        if document.file == file and 0 <= index < len(lines):
            return " ".join(lines[index].split())[:MOST_TEXT]
    return ""


def _assumption(each: Assumed) -> AssumptionView:
    return AssumptionView(name=each.name, value=each.value, reason=each.reason, option=each.option)


def _estimate(subject: Subject, own: Judged, change: Change | None) -> EstimateView:
    problem, plan, result = own.problem, own.plan, own.estimate
    work, best = problem.workload, better_plan(own)
    ratio = float(result.interval_ratio[0])
    rate, alone = own.device_tokens_per_s, on_one_node(own)
    return EstimateView(
        verdict=VERDICTS[own.verdict],
        engine=problem.engine.name,
        engine_title=problem.engine.title,
        network=work.network.name,
        parameters=network_parameters(work.network).total,
        cluster=problem.cluster.name,
        devices=plan.devices,
        nodes=problem.cluster.nodes,
        plan=plan_keys(plan),
        plan_title=describe(plan),
        global_batch=work.global_batch,
        sequence_tokens=work.sequence_tokens,
        method=str(work.method),
        optimizer=next((name for name, each in OPTIMIZERS.items() if each == work.optimizer), "custom"),
        memory_bytes=_device(own),
        host_memory_bytes=_host(own),
        step_s=times(own.step_s, ratio),
        tokens_per_s_per_device=times(rate, ratio),
        mfu=float(result.mfu[0]),
        terms_s=terms(result, 0),
        traffic=tuple(TrafficView(**asdict(each)) for each in flows(own)),
        one_node=None if alone is None else OneNodeView(**asdict(alone)),
        run=_run(own, ratio),
        change=None if change is None else _change(subject.job, own, change),
        better=None if best is None else _better(subject.job, own, best),
        is_near_best=best is not None and best.is_near,
        notes=calibration_notes(problem),
    )


def _device(own: Judged) -> DeviceMemoryView:
    low, high = needed_ends(own.problem, np.array([own.needed_bytes]), own.estimate.memory.routing_bytes[:1])
    return DeviceMemoryView(
        verdict=VERDICTS[own.device_verdict],
        needed=own.needed_bytes,
        low=float(low[0]),
        high=float(high[0]),
        routing=float(own.estimate.memory.routing_bytes[0]),
        capacity=own.problem.accelerator.memory_bytes,
        by_phase=own.phase_bytes,
        by_kind=own.kind_bytes,
    )


def _host(own: Judged) -> HostMemoryView:
    host = own.host
    return HostMemoryView(
        verdict=None if host.verdict is None else VERDICTS[host.verdict],
        running=host.running_bytes,
        most=host.most_bytes,
        load=host.load_bytes,
        capacity=host.capacity_bytes,
    )


def _run(own: Judged, ratio: float) -> RunView | None:
    total = own.problem.workload.total_tokens
    if total is None:
        return None
    duration = times(total / tokens_per_step(own.problem) * own.step_s, ratio)
    hours = own.plan.devices / HOUR_S
    spent = Interval(value=duration.value * hours, low=duration.low * hours, high=duration.high * hours)
    return RunView(tokens=total, duration_s=duration, device_hours=spent)


def _change(job: Job, own: Judged, change: Change) -> OtherPlanView:
    by_hand = edits_of(job, change.facts)[1]
    return _other(change.title, own, change.judged, keeps_training=change.keeps_training, by_hand=by_hand)


def _better(job: Job, own: Judged, best: Better) -> OtherPlanView:
    other = _other("better plan", own, best.judged, keeps_training=True, by_hand=())
    if best.is_near:
        return other
    target, texts = files_of(job, best.judged)
    return replace(other, target=target, texts=texts)


def _other(
    title: str, own: Judged, other: Judged, *, keeps_training: bool, by_hand: tuple[str, ...]
) -> OtherPlanView:
    rate, before = other.device_tokens_per_s * other.plan.devices, own.device_tokens_per_s * own.plan.devices
    return OtherPlanView(
        title=title,
        plan=plan_keys(other.plan),
        plan_title=describe(other.plan),
        verdict=VERDICTS[other.verdict],
        needed_bytes=other.needed_bytes,
        host_bytes=other.host.most_bytes,
        step_s=other.step_s,
        tokens_per_s_per_device=other.device_tokens_per_s,
        gain=rate / before - 1.0,
        keeps_training=keeps_training,
        by_hand=by_hand,
    )


def _fix(job: Job, findings: list[Finding], change: Change | None) -> FixView:
    """Write the copies; what no edit could be found for is told."""
    wish: Wish | None = None
    by_hand: tuple[str, ...] = ()
    if change is not None:
        edits, by_hand = edits_of(job, change.facts)
        wish = Wish(title=change.title, edits=() if by_hand else edits)
    found = fixed(job, wishes(findings, wish))
    write_fixed(found)
    rest = [
        f"{each.rule}: {each.fix}" for each in findings if not each.edits and each.severity is Severity.ERROR
    ]
    if change is not None and by_hand:
        rest.append(f"{change.title}: set {', '.join(by_hand)} by hand")
    return FixView(
        written=tuple(str(Path(each)) for each in found.texts),
        diff=found.diff,
        done=found.done,
        left_out=(*found.left_out, *rest),
    )
