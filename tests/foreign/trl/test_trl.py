"""TRL's YAML, its command and its classes: facts, and each rule with what breaks it and what nearly does."""

from pathlib import Path

import pytest

from foreign.judging import job_of, lines_of, values_of

HEAD = (
    "model_name_or_path: Qwen/Qwen3-8B\ndataset_name: trl-lib/Capybara\n"
    "per_device_train_batch_size: 2\nlearning_rate: 2.0e-4\n"
)
GROUPS = HEAD.replace("Capybara", "tldr")


def test_facts_are_in_the_words_of_the_field(tmp_path: Path) -> None:
    text = (
        HEAD
        + "max_length: 4096\npacking: true\nuse_peft: true\nlora_r: 32\nload_in_4bit: true\nbf16: true\n"
        + "gradient_accumulation_steps: 4\nattn_implementation: flash_attention_2\nmax_steps: 50\n"
    )

    assert values_of(job_of(tmp_path, {"a.yaml": text})) == {
        "model": "Qwen/Qwen3-8B",
        "micro_batch": 2,
        "accumulation": 4,
        "eval_batch": 8,
        "steps": 50,
        "learning_rate": 2e-4,
        "precision": "bf16",
        "sequence_tokens": 4096,
        "packing": True,
        "recompute": "full",
        "attention": "flash",
        "method": "qlora",
        "quantized_bits": 4,
        "lora_rank": 32,
    }


def test_the_command_names_its_file_and_its_processes(tmp_path: Path) -> None:
    found = job_of(
        tmp_path,
        {"run.sh": "trl sft --config a.yaml --num_processes 8\n", "a.yaml": HEAD + "max_length: 512\n"},
    )

    assert found.value("devices") == 8
    assert found.value("sequence_tokens") == 512
    assert [each.rule for each in found.findings if each.rule.startswith("unknown")] == []


BROKEN: list[tuple[str, str, str, str]] = [
    (
        "trl-packing-attention",
        "packing",
        "packing: true\nattn_implementation: sdpa\n",
        "packing: true\npacking_strategy: wrapped\nattn_implementation: sdpa\n",
    ),
    ("trl-packing-length", "packing", "packing: true\nmax_length: null\n", "packing: true\n"),
    ("trl-one-generation", "num_generations", "num_generations: 1\n", "num_generations: 2\n"),
    (
        "trl-find-batch",
        "auto_find_batch_size",
        "num_generations: 4\nauto_find_batch_size: true\n",
        "packing: false\nauto_find_batch_size: true\n",
    ),
    (
        "trl-quantized-twice",
        "load_in_8bit",
        "use_peft: true\nload_in_8bit: true\nload_in_4bit: true\n",
        "use_peft: true\nload_in_8bit: true\n",
    ),
    ("trl-quantized-full", "load_in_4bit", "load_in_4bit: true\n", "use_peft: true\nload_in_4bit: true\n"),
    ("trl-adapters-unused", "lora_r", "lora_r: 16\n", "use_peft: true\nlora_r: 16\n"),
    ("trl-liger-old", "use_liger_kernel", "use_liger_kernel: true\n", "use_liger_kernel: false\n"),
    ("removed-key", "max_seq_length", "max_seq_length: 512\n", "max_length: 512\n"),
    ("misspelt-key", "max_lenght", "max_lenght: 512\n", "max_length: 512\n"),
]


@pytest.mark.parametrize(("rule", "key", "broken", "nearly"), BROKEN, ids=[each[0] for each in BROKEN])
def test_each_rule_finds_what_breaks_it_and_nothing_beside(
    tmp_path: Path, rule: str, key: str, broken: str, nearly: str
) -> None:
    text = HEAD + broken
    line = [each.partition(":")[0] for each in text.splitlines()].index(key) + 1

    assert lines_of(job_of(tmp_path, {"a.yaml": text}), rule) == [line]
    assert lines_of(job_of(tmp_path, {"b.yaml": HEAD + nearly}), rule) == []


@pytest.mark.parametrize(("devices", "expected"), [(4, []), (3, [5])])
def test_a_generation_batch_holds_whole_groups(tmp_path: Path, devices: int, expected: list[int]) -> None:
    text = GROUPS + "num_generations: 8\nmax_completion_length: 512\n"  # 2 * 4 = 8, and 2 * 3 = 6

    assert lines_of(job_of(tmp_path, {"a.yaml": text}, devices=devices), "trl-groups") == expected


def test_classes_in_python_are_judged_like_the_file(tmp_path: Path) -> None:
    text = "from trl import GRPOConfig\nGRPOConfig('o', num_generations=3, per_device_train_batch_size=4)\n"

    assert lines_of(job_of(tmp_path, {"a.py": text}, devices=2), "trl-groups") == [2]


def test_activations_are_recomputed_unless_the_file_says_no(tmp_path: Path) -> None:
    assert job_of(tmp_path, {"a.yaml": HEAD}).value("recompute") == "full"
    assert job_of(tmp_path, {"a.yaml": HEAD + "gradient_checkpointing: false\n"}).value("recompute") == "none"


@pytest.mark.parametrize(
    "line",
    ["lora_target_modules: all-linear", "lora_target_parameters: mlp.w", "loss_type: sigmoid\nbeta: 0.1"],
)
def test_one_text_does_where_the_class_takes_a_text_or_a_list(tmp_path: Path, line: str) -> None:
    found = job_of(tmp_path, {"a.yaml": f"{HEAD}use_peft: true\n{line}\n"})

    assert lines_of(found, "wrong-type") == []


@pytest.mark.parametrize("line", ["lora_modules_to_save: lm_head", "reward_weights: 1.0\nnum_generations: 4"])
def test_one_value_is_wrong_where_the_class_counts_or_walks_a_list(tmp_path: Path, line: str) -> None:
    found = job_of(tmp_path, {"a.yaml": f"{HEAD}use_peft: true\n{line}\n"})

    assert lines_of(found, "wrong-type") == [6]
