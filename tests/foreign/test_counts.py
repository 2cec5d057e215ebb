"""Counts that no job has are found in every tool that has them, at their line."""

from pathlib import Path

import pytest

from foreign.judging import job_of, lines_of

TRAINER = "model_name_or_path: m\noutput_dir: o\nlearning_rate: 1.0e-4\ndataset_name: d\nuse_peft: true\n"
AXOLOTL = "base_model: m\ndatasets: []\nsequence_len: 512\nadapter: lora\nnum_epochs: 1\n"
WRONG = [
    ("a.json", '{\n"train_batch_size": -4,\n"zero_optimization": {"stage": 2}}', 2),
    ("a.json", '{\n"train_micro_batch_size_per_gpu": 0,\n"zero_optimization": {"stage": 2}}', 2),
    ("a.json", '{\n"gradient_accumulation_steps": 0,\n"zero_optimization": {"stage": 2}}', 2),
    ("a.yaml", TRAINER + "per_device_train_batch_size: 0\n", 6),
    ("a.yaml", TRAINER + "per_device_train_batch_size: 1\ngradient_accumulation_steps: -2\n", 7),
    ("a.yaml", AXOLOTL + "micro_batch_size: 0\n", 6),
    ("a.yaml", AXOLOTL + "gradient_accumulation_steps: 0\n", 6),
    ("a.sh", "torchrun --nnodes=1 --nproc-per-node=0 t.py\n", 1),
    ("a.sh", "python pretrain_gpt.py --num-layers 4 --micro-batch-size 0 --global-batch-size 8\n", 1),
    ("a.sh", "python pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size 0\n", 1),
]


@pytest.mark.parametrize(("name", "text", "line"), WRONG)
def test_a_count_below_one_is_an_error(tmp_path: Path, name: str, text: str, line: int) -> None:
    found = job_of(tmp_path, {name: text})

    errors = {each.place.line for each in found.findings if each.severity == "error" and each.place}
    assert line in errors


@pytest.mark.parametrize(("name", "text", "line"), WRONG[:7])
def test_where_no_tool_has_a_rule_it_is_the_general_one_once(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    right = text.replace("-4", "4").replace("-2", "2").replace(": 0", ": 1")

    assert lines_of(job_of(tmp_path, {name: text}), "count-below-one") == [line]
    assert lines_of(job_of(tmp_path, {name: right}), "count-below-one") == []
