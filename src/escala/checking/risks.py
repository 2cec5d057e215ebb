"""What is slow or at risk in a job whose prediction is known: links, adapters, logits, host, evaluation."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from escala.checking.judging import Judged, judged
from escala.checking.rules import unsaid
from escala.checking.subjects import Subject
from escala.checking.traffic import Flow, flows
from escala.foreign.findings import Finding, finding
from escala.foreign.places import Place
from escala.model.memory import Verdict
from escala.model.plan import Offload, Plan
from escala.units import percent, show_bytes, show_seconds

LEAST_SHARE: Final = 0.15
"""Share of a step from which on a communication that is not hidden is worth a word."""
LOGITS_SHARE: Final = 0.3
FULL_SHARE: Final = 0.5
"""Share of the device's memory that is needed before what fills it is worth a word."""
WORSE: Final = {"adapters-sharded": "lora-zero-3"}
"""Rules that say with numbers what a rule of a tool says without."""
EVAL_LOGIT_BYTES: Final = 8.0
"""Bytes of a logit in evaluation: the 16-bit output, its fp32 copy and what the loss keeps. Source:
transformers 5.24, loss/loss_utils.py (logits.float()) and Trainer.prediction_step."""


def warnings_of(subject: Subject, given: Judged) -> list[Finding]:
    """Everything that a prediction says of a job beside its verdict."""
    moves = flows(given)
    found = [
        *_tensor(subject, given, moves),
        *_gathers(subject, given, moves),
        *_logits(subject, given),
        *_host(subject, given),
        *_evaluation(subject, given),
    ]
    return unsaid(subject, found)


def without_vaguer(found: list[Finding]) -> list[Finding]:
    """The findings without those that another says better, which then stands in their place."""
    vaguer = {WORSE[each.rule] for each in found if each.rule in WORSE}
    places = {each.rule: each.place for each in found if each.rule in vaguer}
    kept = [each for each in found if each.rule not in vaguer]
    return [replace(each, place=places.get(WORSE.get(each.rule, ""), each.place)) for each in kept]


def _place(subject: Subject, *names: str) -> Place | None:
    return next((place for name in names if (place := subject.job.place(name)) is not None), None)


def _flow(moves: tuple[Flow, ...], kind: str) -> Flow | None:
    return next((each for each in moves if each.kind == kind and each.is_between_nodes), None)


def _tensor(subject: Subject, given: Judged, moves: tuple[Flow, ...]) -> Iterator[Finding]:
    flow, per_node = _flow(moves, "tensor"), given.problem.cluster.devices_per_node
    if flow is not None and given.plan.tp > per_node:
        words: dict[str, Any] = {"sent": show_bytes(flow.sent_bytes), "seconds": show_seconds(flow.exposed_s)}
        place = _place(subject, "tp")
        yield finding(
            "tensor-between-nodes", place, tp=given.plan.tp, link=flow.link, per_node=per_node, **words
        )


def _gathers(subject: Subject, given: Judged, moves: tuple[Flow, ...]) -> Iterator[Finding]:
    """Weights gathered over a link between nodes: for adapters a reason to replicate, else what it costs."""
    flow = _flow(moves, "sharding")
    if flow is None or flow.exposed_s < LEAST_SHARE * given.step_s:
        return
    if given.problem.workload.is_frozen:
        yield from _adapters(subject, given, flow)
    elif given.plan.micro_batches > 1 and given.plan.pp == 1:
        fix = "a larger micro-batch in place of accumulation, or shards inside a node (HSDP, hpZ)"
        yield finding(
            "accumulation-gathers",
            _place(subject, "accumulation", "zero"),
            steps=given.plan.micro_batches,
            link=flow.link,
            sent=show_bytes(flow.sent_bytes),
            exposed=show_seconds(flow.exposed_s),
            fix=fix,
        )


def replicated(plan: Plan) -> Plan:
    """The same plan with whole weights on every replica."""
    none = Offload.NONE
    return replace(plan, zero=0, shard=1, reshard=False, offload_optimizer=none, offload_params=none)


def _adapters(subject: Subject, given: Judged, flow: Flow) -> Iterator[Finding]:
    other = judged(given.problem, replicated(given.plan))
    sent = sum(each.sent_bytes for each in flows(other))
    if other.verdict is Verdict.DOES_NOT_FIT or other.step_s > (1 - LEAST_SHARE) * given.step_s:
        return
    yield finding(
        "adapters-sharded",
        _place(subject, "zero", "method"),
        link=flow.link,
        sent=show_bytes(flow.sent_bytes),
        other=show_bytes(sent),
        step=show_seconds(other.step_s),
        own_step=show_seconds(given.step_s),
    )


def _logits(subject: Subject, given: Judged) -> Iterator[Finding]:
    held, head = float(given.estimate.memory.kinds.logits_bytes[0]), given.problem.workload.network.main.head
    share, capacity = held / given.needed_bytes, given.problem.accelerator.memory_bytes
    if given.needed_bytes < FULL_SHARE * capacity:
        return
    if head is not None and head.is_per_token and share > LOGITS_SHARE and not given.plan.fused_loss:
        words: dict[str, Any] = {
            "held": show_bytes(held),
            "share": percent(share),
            "vocabulary": f"{head.outputs:,}",
        }
        yield finding("logits-largest", _place(subject, "micro_batch", "sequence_tokens", "model"), **words)


def _host(subject: Subject, given: Judged) -> Iterator[Finding]:
    host, per_node = given.host, given.problem.cluster.devices_per_node
    if host.capacity_bytes is None:
        return
    capacity = show_bytes(host.capacity_bytes)
    if host.running_bytes > host.capacity_bytes and host.moved_bytes > 0:
        words: dict[str, Any] = {
            "moved": show_bytes(host.moved_bytes),
            "needed": show_bytes(host.running_bytes),
        }
        yield finding(
            "host-memory", _place(subject, "offload_optimizer", "offload_params"), capacity=capacity, **words
        )
    if host.load_bytes is not None and host.load_bytes > host.capacity_bytes:
        size = show_bytes((host.load_bytes - host.running_bytes + host.moved_bytes) / per_node)
        words = {"needed": show_bytes(host.load_bytes), "size": size}
        place = _place(subject, "model", "devices_per_node", "devices")
        yield finding("host-memory-load", place, ranks=per_node, capacity=capacity, **words)


def eval_bytes(given: Judged, samples: int) -> tuple[float, float]:
    """Device memory of an evaluation of so many samples at once, and its logits alone."""
    head, tokens = given.problem.workload.network.main.head, given.problem.workload.sequence_tokens
    outputs = 0 if head is None or not head.is_per_token else head.outputs
    logits = EVAL_LOGIT_BYTES * samples * tokens * outputs / (given.plan.tp * given.plan.cp)
    own = float(given.estimate.memory.kinds.logits_bytes[0])
    return given.phase_bytes["eval"] - own + logits, logits


def _evaluation(subject: Subject, given: Judged) -> Iterator[Finding]:
    samples = subject.job.count("eval_batch")
    if samples is None or samples < 1:
        return
    known, capacity = given.problem.assumptions, given.problem.accelerator.memory_bytes
    needed, logits = eval_bytes(given, samples)
    needed += known.reserve_bytes
    if needed <= known.full_share * capacity or given.device_verdict is Verdict.DOES_NOT_FIT:
        return
    room = known.risky_share * capacity - (needed - logits)
    fitting = max(1, int(room / (logits / samples))) if logits else 1
    yield finding(
        "eval-peak",
        _place(subject, "eval_batch"),
        samples=samples,
        held=show_bytes(logits),
        needed=show_bytes(needed),
        capacity=show_bytes(capacity),
        training=show_bytes(given.needed_bytes),
        fitting=fitting,
        also="",
    )
