"""LLaMA-Factory's YAML: its facts, and each rule with a file that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from foreign.judging import job_of, lines_of, values_of

BASE = {
    "model_name_or_path": "meta-llama/Llama-3.1-8B",
    "stage": "sft",
    "finetuning_type": "lora",
    "template": "llama3",
    "cutoff_len": "2048",
}
ZERO = {stage: f'{{"zero_optimization": {{"stage": {stage}}}}}' for stage in (2, 3)}


def text_of(**keys: str) -> str:
    """A file with some keys, and the usual ones above them."""
    lines = {**BASE, **keys}
    return "".join(f"{name}: {value}\n" for name, value in lines.items() if value != "-")


def line_of(text: str, key: str) -> int:
    """The line of a key."""
    return [line.partition(":")[0] for line in text.splitlines()].index(key) + 1


def test_facts_are_in_the_words_of_the_field(tmp_path: Path) -> None:
    keys = {"per_device_train_batch_size": "2", "gradient_accumulation_steps": "4", "bf16": "true"}
    found = values_of(
        job_of(
            tmp_path,
            {
                "train.yaml": text_of(quantization_bit="4", lora_rank="16", deepspeed="z3.json", **keys),
                "z3.json": ZERO[3],
            },
        )
    )

    assert found == {
        "model": "meta-llama/Llama-3.1-8B",
        "sequence_tokens": 2048,
        "micro_batch": 2,
        "accumulation": 4,
        "eval_batch": 8,
        "precision": "bf16",
        "method": "qlora",
        "quantized_bits": 4,
        "lora_rank": 16,
        "recompute": "full",
        "zero": 3,
        "reshard": True,
    }


def test_the_command_names_its_file_and_its_processes(tmp_path: Path) -> None:
    script = (
        "export NNODES=2\nFORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train train.yaml bf16=true\n"
    )

    found = job_of(tmp_path, {"launch.sh": script, "train.yaml": text_of()})

    assert found.value("devices") == 16  # 2 * 8
    assert found.value("precision") == "bf16"
    assert found.value("sequence_tokens") == 2048


BROKEN: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
    ("trainer-fp16-and-bf16", "bf16", {"fp16": "true", "bf16": "true"}, {"fp16": "false", "bf16": "true"}),
    ("trainer-auto", "bf16", {"bf16": "auto"}, {"bf16": "true"}),
    ("number-as-text-converted", "learning_rate", {"learning_rate": "5e-5"}, {"learning_rate": "5.0e-5"}),
    (
        "llamafactory-quantized-full",
        "quantization_bit",
        {"quantization_bit": "4", "finetuning_type": "full"},
        {"quantization_bit": "4", "finetuning_type": "lora"},
    ),
    (
        "llamafactory-quantized-sharded",
        "quantization_bit",
        {"quantization_bit": "8", "deepspeed": "z3.json"},
        {"quantization_bit": "4", "deepspeed": "z3.json"},
    ),
    (
        "llamafactory-quantized-sharded-other",
        "quantization_method",
        {"quantization_bit": "4", "quantization_method": "hqq", "deepspeed": "z3.json"},
        {"quantization_bit": "4", "quantization_method": "hqq", "deepspeed": "z2.json"},
    ),
    (
        "llamafactory-quantized-adapter",
        "create_new_adapter",
        {"quantization_bit": "4", "adapter_name_or_path": "out", "create_new_adapter": "true"},
        {"adapter_name_or_path": "out", "create_new_adapter": "true"},
    ),
    (
        "llamafactory-adapter-full",
        "adapter_name_or_path",
        {"adapter_name_or_path": "out", "finetuning_type": "full"},
        {"adapter_name_or_path": "out"},
    ),
    (
        "llamafactory-quantized-map",
        "quantization_device_map",
        {"do_train": "true", "dataset": "d", "quantization_device_map": "auto"},
        {"do_train": "false", "quantization_device_map": "auto"},
    ),
    (
        "llamafactory-pure-bf16",
        "pure_bf16",
        {"pure_bf16": "true", "deepspeed": "z3.json"},
        {"pure_bf16": "true", "deepspeed": "z2.json"},
    ),
    (
        "llamafactory-unsloth-zero",
        "use_unsloth",
        {"use_unsloth": "true", "deepspeed": "z3.json"},
        {"use_unsloth": "true"},
    ),
    (
        "llamafactory-generate-zero",
        "predict_with_generate",
        {"predict_with_generate": "true", "val_size": "0.1", "deepspeed": "z3.json"},
        {"predict_with_generate": "true", "val_size": "0.1", "deepspeed": "z2.json"},
    ),
    (
        "llamafactory-pissa-zero",
        "pissa_init",
        {"pissa_init": "true", "deepspeed": "z3.json"},
        {"pissa_init": "true", "deepspeed": "z2.json"},
    ),
    (
        "llamafactory-pissa-quantized",
        "pissa_init",
        {"pissa_init": "true", "quantization_bit": "4"},
        {"pissa_init": "false", "quantization_bit": "4"},
    ),
    (
        "llamafactory-projected-deepspeed",
        "use_galore",
        {"use_galore": "true", "finetuning_type": "full", "deepspeed": "z2.json"},
        {"use_galore": "true", "finetuning_type": "full"},
    ),
    (
        "llamafactory-projected-lora",
        "use_galore",
        {"use_galore": "true"},
        {"use_galore": "true", "finetuning_type": "full"},
    ),
    (
        "llamafactory-fp8-quantized",
        "fp8",
        {"fp8": "true", "quantization_bit": "4"},
        {"fp8": "true"},
    ),
    ("llamafactory-no-data", "do_train", {"do_train": "true"}, {"do_train": "true", "dataset": "alpaca"}),
    ("llamafactory-no-eval-data", "do_eval", {"do_eval": "true"}, {"do_eval": "true", "val_size": "0.1"}),
    (
        "llamafactory-eval-data-twice",
        "val_size",
        {"val_size": "0.1", "eval_dataset": "d"},
        {"val_size": "0.0", "eval_dataset": "d"},
    ),
    (
        "llamafactory-stream-steps",
        "streaming",
        {"streaming": "true"},
        {"streaming": "true", "max_steps": "9"},
    ),
    (
        "llamafactory-stream-samples",
        "max_samples",
        {"streaming": "true", "max_steps": "9", "max_samples": "100"},
        {"streaming": "false", "max_samples": "100"},
    ),
    (
        "llamafactory-neat-packing",
        "neat_packing",
        {"neat_packing": "true", "stage": "dpo"},
        {"neat_packing": "true"},
    ),
    (
        "llamafactory-generate-stage",
        "predict_with_generate",
        {"predict_with_generate": "true", "val_size": "0.1", "stage": "rm"},
        {"predict_with_generate": "true", "val_size": "0.1"},
    ),
    (
        "llamafactory-best-stage",
        "load_best_model_at_end",
        {"load_best_model_at_end": "true", "stage": "rm", "eval_strategy": "steps", "val_size": "0.1"},
        {"load_best_model_at_end": "true", "stage": "dpo", "eval_strategy": "steps", "val_size": "0.1"},
    ),
    (
        "llamafactory-reward-model",
        "stage",
        {"stage": "ppo", "do_train": "true"},
        {"stage": "ppo", "do_train": "true", "reward_model": "out"},
    ),
    (
        "llamafactory-lora-only",
        "use_dora",
        {"use_dora": "true", "finetuning_type": "full"},
        {"use_dora": "true"},
    ),
    ("llamafactory-attention-name", "flash_attn", {"flash_attn": "flash_attention_2"}, {"flash_attn": "fa2"}),
    (
        "llamafactory-experts-zero",
        "deepspeed",
        {"model_name_or_path": "mistralai/Mixtral-8x7B-v0.1", "deepspeed": "z3.json"},
        {"model_name_or_path": "mistralai/Mixtral-8x7B-v0.1", "deepspeed": "z2.json"},
    ),
    (
        "lora-zero-3",
        "deepspeed",
        {"deepspeed": "z3.json"},
        {"deepspeed": "z3.json", "finetuning_type": "full"},
    ),
    ("misspelt-key", "cutof_len", {"cutof_len": "1"}, {"cutoff_len": "1"}),
    ("removed-key", "dpo_beta", {"dpo_beta": "0.1"}, {"pref_beta": "0.1"}),
]


@pytest.mark.parametrize(("rule", "key", "broken", "nearly"), BROKEN, ids=[each[0] for each in BROKEN])
def test_each_rule_finds_what_breaks_it_and_nothing_beside(
    tmp_path: Path, rule: str, key: str, broken: dict[str, str], nearly: dict[str, str]
) -> None:
    texts = {"z2.json": ZERO[2], "z3.json": ZERO[3]}
    text = text_of(**broken)

    assert lines_of(job_of(tmp_path, {"a.yaml": text, **texts}), rule) == [line_of(text, key)]
    assert lines_of(job_of(tmp_path, {"b.yaml": text_of(**nearly), **texts}), rule) == []


@pytest.mark.parametrize(("devices", "expected"), [(8, [6]), (1, [])])
def test_badam_is_distributed_under_zero_3_only(tmp_path: Path, devices: int, expected: list[int]) -> None:
    text = text_of(finetuning_type="full", use_badam="true")

    assert lines_of(job_of(tmp_path, {"a.yaml": text}, devices=devices), "llamafactory-badam") == expected


def test_an_older_version_stops_at_a_number_that_is_text(tmp_path: Path) -> None:
    found = job_of(tmp_path, {"a.yaml": text_of(learning_rate="1e-4")}, {"llamafactory": "0.9.2"})

    assert lines_of(found, "number-as-text") == [6]
    assert [each.edits[0].text for each in found.findings if each.rule == "number-as-text"] == ["1.0e-4"]


def test_one_node_moves_frozen_weights_inside_it_alone(tmp_path: Path) -> None:
    texts = {"a.yaml": text_of(deepspeed="z3.json"), "z3.json": ZERO[3]}

    assert lines_of(job_of(tmp_path, texts, nodes=1), "lora-zero-3") == []
    assert lines_of(job_of(tmp_path, texts, nodes=2), "lora-zero-3") == [6]
