"""Rules that need model or devices: each with a job that breaks it and one that nearly does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from escala.checking.judging import judged
from escala.checking.risks import warnings_of, without_vaguer
from escala.checking.rules import findings_of
from escala.checking.subjects import Subject
from escala.foreign.findings import Finding, Severity
from escala.foreign.places import Place

DENSE: dict[str, Any] = {"model": "llama-3.1-8b", "precision": "bf16"}
MIXED: dict[str, Any] = {"model": "mixtral-8x7b", "precision": "bf16"}
PIPED: dict[str, Any] = {**DENSE, "gpus": 64, "micro_batch": 1}


@pytest.mark.parametrize(
    ("rule", "breaks", "nearly"),
    [
        ("tensor-heads", {**DENSE, "gpus": 48, "tp": 48}, {**DENSE, "gpus": 48, "tp": 8}),
        ("tensor-key-value-heads", {**DENSE, "gpus": 16, "tp": 16}, {**DENSE, "gpus": 16, "tp": 8}),
        (
            "tensor-key-value-heads",
            {**DENSE, "gpus": 16, "tp": 16},
            {**DENSE, "gpus": 16, "tp": 16, "engine": "megatron-core"},
        ),
        (
            "pipeline-layers",
            {**PIPED, "pp": 64, "global_batch": 64},
            {**PIPED, "pp": 32, "global_batch": 256},
        ),
        (
            "pipeline-layers-uneven",
            {**DENSE, "gpus": 20, "pp": 5, "global_batch": 512},
            {**DENSE, "gpus": 16, "pp": 4, "global_batch": 512},
        ),
        # 7 / (8 + 7) = 47 % idle; 7 / (16 + 7) = 30 %
        (
            "pipeline-micro-batches",
            {**PIPED, "pp": 8, "global_batch": 64},
            {**PIPED, "pp": 8, "global_batch": 128},
        ),
        (
            "pipeline-interleaved-micro-batches",
            {**PIPED, "pp": 4, "virtual_stages": 2, "schedule": "interleaved", "global_batch": 96},
            {**PIPED, "pp": 4, "virtual_stages": 2, "schedule": "interleaved", "global_batch": 128},
        ),
        ("expert-degree", {**MIXED, "gpus": 16, "ep": 16}, {**MIXED, "gpus": 16, "ep": 8}),
        ("expert-degree-dense", {**DENSE, "ep": 2}, {**MIXED, "ep": 2}),
        (
            "sequence-context",
            {**DENSE, "cp": 4, "sequence_tokens": 8196},
            {**DENSE, "cp": 4, "sequence_tokens": 8200},
        ),
        (
            "sequence-tensor",
            {**DENSE, "tp": 8, "sp": True, "sequence_tokens": 4100},
            {**DENSE, "tp": 8, "sp": True, "sequence_tokens": 4104},
        ),
        (
            "context-heads",
            {**DENSE, "gpus": 16, "cp": 16, "cp_kind": "ulysses", "sequence_tokens": 8192},
            {**DENSE, "cp": 8, "cp_kind": "ulysses", "sequence_tokens": 8192},
        ),
        (
            "sequence-beyond-context",
            {"model": "llama-3-8b", "sequence_tokens": 16384},
            {"model": "llama-3-8b", "sequence_tokens": 8192},
        ),
        (
            "precision-device",
            {**DENSE, "gpu": "v100-sxm2-32gb"},
            {**DENSE, "gpu": "v100-sxm2-32gb", "precision": "fp16"},
        ),
        (
            "precision-device",
            {**DENSE, "gpu": "a100-sxm-80gb", "precision": "fp8-tensorwise"},
            {**DENSE, "precision": "fp8-tensorwise"},
        ),
        (
            "flash-device",
            {**DENSE, "gpu": "t4", "precision": "fp16", "attention": "flash"},
            {**DENSE, "gpu": "a100-sxm-80gb", "attention": "flash"},
        ),
        ("devices-degrees", {**DENSE, "gpus": 24, "tp": 16}, {**DENSE, "gpus": 32, "tp": 8}),
        (
            "batch-ranks",
            {**DENSE, "micro_batch": 3, "global_batch": 100},
            {**DENSE, "micro_batch": 3, "global_batch": 96},
        ),
        (
            "batch-product",
            {**DENSE, "micro_batch": 2, "accumulation": 4, "global_batch": 100},
            {**DENSE, "micro_batch": 2, "accumulation": 4, "global_batch": 64},
        ),
    ],
)
def test_a_rule_speaks_of_what_breaks_it_alone(
    subject: Callable[..., Subject], rule: str, breaks: dict[str, Any], nearly: dict[str, Any]
) -> None:
    assert rule in [each.rule for each in findings_of(subject(**breaks))]
    assert rule not in [each.rule for each in findings_of(subject(**nearly))]


TUNED: dict[str, Any] = {"model": "llama-3-8b", "precision": "bf16", "gpu": "a800-sxm-80gb", "micro_batch": 1}
SLOW: dict[str, Any] = {"gpus": 16, "network": "1.25 Gb/s"}


@pytest.mark.parametrize(
    ("rule", "breaks", "nearly"),
    [
        (
            "tensor-between-nodes",
            {**DENSE, "gpus": 16, "tp": 16, "engine": "megatron-core"},
            {**DENSE, "gpus": 16, "tp": 8, "engine": "megatron-core"},
        ),
        (
            "accumulation-gathers",
            {**TUNED, **SLOW, "zero": 3, "accumulation": 4, "method": "full"},
            {**TUNED, **SLOW, "zero": 3, "accumulation": 1, "method": "full"},
        ),
        (
            "adapters-sharded",
            {**TUNED, **SLOW, "zero": 3, "accumulation": 2, "method": "lora", "sequence_tokens": 2048},
            {**TUNED, "gpus": 8, "zero": 3, "accumulation": 2, "method": "lora", "sequence_tokens": 2048},
        ),
        # 8,192 tokens * 128,256 words * some 12 to 18 bytes
        (
            "logits-largest",
            {**DENSE, "gpus": 64, "zero": 3, "micro_batch": 4, "recompute": "full"},
            {**DENSE, "gpus": 64, "zero": 3, "micro_batch": 4, "recompute": "full", "fused_loss": True},
        ),
        # 16 bytes * 70 G = 1.1 TB of states in one node; 8 nodes share them
        (
            "host-memory",
            {"model": "llama-3.1-405b", "precision": "bf16", "zero": 3, "offload_optimizer": "cpu"},
            {"model": "llama-3.1-8b", "precision": "bf16", "zero": 3, "offload_optimizer": "cpu"},
        ),
        # 8 ranks * 2 bytes * 405 G = 6.5 TB; pretraining reads no weights
        (
            "host-memory-load",
            {"model": "llama-3.1-405b", "zero": 3, "method": "full"},
            {"model": "llama-3.1-405b", "zero": 3, "method": "pretrain"},
        ),
        (
            "eval-peak",
            {**TUNED, "zero": 3, "method": "lora", "sequence_tokens": 8192, "eval_batch": 16},
            {**TUNED, "zero": 3, "method": "lora", "sequence_tokens": 8192, "eval_batch": 2},
        ),
    ],
)
def test_a_risk_is_told_where_it_is_one(
    subject: Callable[..., Subject], rule: str, breaks: dict[str, Any], nearly: dict[str, Any]
) -> None:
    def told(given: dict[str, Any]) -> list[str]:
        found = subject(**given)
        assert found.problem is not None, found.missing
        assert found.plan is not None
        return [each.rule for each in warnings_of(found, judged(found.problem, found.plan))]

    assert rule in told(breaks)
    assert rule not in told(nearly)


def named(rule: str, severity: Severity = Severity.NOTE) -> Finding:
    """A finding of a rule, without words."""
    return Finding(rule=rule, severity=severity, place=None, what="", why="", fix="", source="")


def test_a_warning_with_numbers_stands_in_for_the_note_without() -> None:
    place = Place(file="sft.yaml", line=7)
    found = [replace(named("lora-zero-3"), place=place), named("adapters-sharded"), named("logits-largest")]

    assert [(each.rule, each.place) for each in without_vaguer(found)] == [
        ("adapters-sharded", place),
        ("logits-largest", None),
    ]
    assert without_vaguer(found[:1]) == found[:1]


def test_a_rule_of_a_tool_that_says_the_same_wins(subject: Callable[..., Subject]) -> None:
    found = subject(**DENSE, gpus=24, tp=16)

    def told(severity: Severity) -> list[str]:
        own = named("megatron-world-product", severity)
        return [each.rule for each in findings_of(replace(found, job=replace(found.job, findings=(own,))))]

    assert "devices-degrees" not in told(Severity.ERROR)
    assert "devices-degrees" in told(Severity.NOTE)


def test_a_finding_stands_where_the_fact_is_said(subject: Callable[..., Subject]) -> None:
    found = findings_of(subject(gpus=16, model="llama-3.1-8b", tp=16))

    assert [(each.rule, each.place.line) for each in found if each.place] == [("tensor-key-value-heads", 2)]
