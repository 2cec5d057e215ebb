"""DeepSpeed's JSON: its facts, and each rule with a file that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job

ZERO_3 = '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}'


def job(folder: Path, text: str, **given: Value) -> Job:
    (folder / "ds.json").write_text(text)
    return read_job([str(folder / "ds.json")], given, {})


def rules(found: Job) -> list[tuple[str, int]]:
    return [(each.rule, each.place.line) for each in found.findings if each.place]


def test_facts_are_in_the_words_of_the_field(tmp_path: Path) -> None:
    text = f'{{"train_micro_batch_size_per_gpu": 2, "bf16": {{"enabled": true}}, {ZERO_3}}}'

    found = job(tmp_path, text)

    assert {name: each.value for name, each in found.facts.items()} == {
        "micro_batch": 2,
        "precision": "bf16",
        "zero": 3,
        "reshard": True,
        "offload_optimizer": "cpu",
    }
    assert [reading.engine for reading in found.readings] == ["deepspeed"]


@pytest.mark.parametrize(
    ("batch", "devices", "expected"),
    [
        (64, 2, []),  # 4 * 8 * 2 = 64
        (64, 4, [("deepspeed-batch-product", 2)]),
        (64, None, [("deepspeed-batch-fixed", 2)]),
    ],
)
def test_the_batch_is_micro_batch_times_accumulation_times_ranks(
    tmp_path: Path, batch: int, devices: int | None, expected: list[tuple[str, int]]
) -> None:
    steps = '"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8'
    text = f'{{\n"train_batch_size": {batch}, {steps}}}'
    given: dict[str, Value] = {} if devices is None else {"devices": devices}

    assert rules(job(tmp_path, text, **given)) == expected


@pytest.mark.parametrize(
    ("stage", "expected"),
    [(3, [("deepspeed-gather-on-save", 1)]), (2, [("deepspeed-offload-param-stage", 1)])],
)
def test_parameters_are_offloaded_at_stage_3_only(
    tmp_path: Path, stage: int, expected: list[tuple[str, int]]
) -> None:
    block = f'"zero_optimization": {{"stage": {stage}, "offload_param": {{"device": "cpu"}}}}'

    assert rules(job(tmp_path, f'{{"train_micro_batch_size_per_gpu": 1, {block}}}')) == expected
