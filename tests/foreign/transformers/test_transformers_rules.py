"""Rules of the trainer's arguments, each with a text that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from foreign.judging import job_of, lines_of

HEAD = "per_device_train_batch_size: 4\noutput_dir: out\nsave_strategy: 'no'\n"
FSDP = "fsdp: true\nfsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n"
IMPORTS = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nFA2 = 'flash_attention_2'\n"
)

BROKEN: list[tuple[str, str, str, str]] = [
    ("number-as-text", "learning_rate", "learning_rate: 5e-5\n", "learning_rate: 5.0e-5\n"),
    ("trainer-auto", "bf16", "bf16: auto\n", "bf16: true\n"),
    ("trainer-fp16-and-bf16", "bf16", "fp16: true\nbf16: true\n", "fp16: true\nbf16: false\n"),
    (
        "trainer-full-eval-formats",
        "bf16_full_eval",
        "fp16_full_eval: true\nbf16_full_eval: true\n",
        "bf16_full_eval: true\n",
    ),
    ("trainer-fsdp-and-deepspeed", "fsdp", "deepspeed: z.json\n" + FSDP, FSDP),
    ("trainer-fsdp-words", "fsdp", "fsdp: full_shard auto_wrap\n", FSDP),
    (
        "trainer-fsdp-hybrid",
        "fsdp",
        "fsdp: hybrid_shard\n",
        "fsdp: hybrid_shard\nfsdp_config: {version: 1}\n",
    ),
    ("trainer-fsdp1", "  version", FSDP + "  version: 1\n", FSDP + "  version: 2\n"),
    ("trainer-fsdp-unused", "fsdp_config", "fsdp_config:\n  version: 2\n", FSDP),
    (
        "trainer-checkpointing-fsdp",
        "activation_checkpointing",
        "activation_checkpointing: true\n" + FSDP,
        FSDP + "  activation_checkpointing: true\n",
    ),
    (
        "trainer-full-state-save",
        "  state_dict_type",
        "fsdp: true\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n",
        FSDP,
    ),
    (
        "trainer-eval-batch",
        "per_device_eval_batch_size",
        "eval_strategy: epoch\nper_device_eval_batch_size: 16\n",
        "eval_strategy: epoch\nper_device_eval_batch_size: 8\n",
    ),
    (
        "trainer-eval-host",
        "eval_accumulation_steps",
        "eval_accumulation_steps: 4\n",
        "eval_accumulation_steps: 4\nprediction_loss_only: true\n",
    ),
    (
        "trainer-best-strategies",
        "load_best_model_at_end",
        "load_best_model_at_end: true\neval_strategy: epoch\n",
        "load_best_model_at_end: true\neval_strategy: 'no'\n",
    ),
    (
        "trainer-prefetch",
        "dataloader_prefetch_factor",
        "dataloader_prefetch_factor: 2\n",
        "dataloader_prefetch_factor: 2\ndataloader_num_workers: 4\n",
    ),
    (
        "trainer-cache",
        "use_cache",
        "use_cache: true\nactivation_checkpointing: true\n",
        "use_cache: true\nactivation_checkpointing: false\n",
    ),
    ("trainer-misspelt", "learning_rat", "learning_rat: 0.1\n", "rate_of_learning: 0.1\n"),
    (
        "deprecated-key",
        "gradient_checkpointing",
        "gradient_checkpointing: true\n",
        "activation_checkpointing: true\n",
    ),
    ("removed-key", "evaluation_strategy", "evaluation_strategy: epoch\n", "eval_strategy: epoch\n"),
    ("wrong-type", "eval_strategy", "eval_strategy: no\n", "eval_strategy: 'no'\n"),
]


@pytest.mark.parametrize(("rule", "key", "broken", "nearly"), BROKEN, ids=[each[0] for each in BROKEN])
def test_each_rule_finds_what_breaks_it_and_nothing_beside(
    tmp_path: Path, rule: str, key: str, broken: str, nearly: str
) -> None:
    texts = {"z.json": '{"zero_optimization": {"stage": 2}}'}
    text = HEAD + broken
    line = [each.partition(":")[0] for each in text.splitlines()].index(key) + 1

    assert lines_of(job_of(tmp_path, {"a.yaml": text, **texts}), rule) == [line]
    assert lines_of(job_of(tmp_path, {"b.yaml": HEAD + nearly, **texts}), rule) == []


@pytest.mark.parametrize(("save", "expected"), [(300, [2]), (400, []), (".nan", []), ("9" * 400, [])])
def test_the_best_model_is_saved_when_it_is_evaluated(
    tmp_path: Path, save: object, expected: list[int]
) -> None:
    text = (
        "per_device_train_batch_size: 4\nload_best_model_at_end: true\n"
        f"eval_strategy: steps\nsave_strategy: steps\neval_steps: 200\nsave_steps: {save}\n"
    )

    assert lines_of(job_of(tmp_path, {"a.yaml": text}), "trainer-best-steps") == expected


@pytest.mark.parametrize(("version", "expected"), [("4.45.2", [4]), ("4.46.0", []), (None, [])])
def test_the_loss_of_accumulated_batches_was_wrong_before_4_46(
    tmp_path: Path, version: str | None, expected: list[int]
) -> None:
    versions = {"transformers": version} if version else {}
    job = job_of(tmp_path, {"a.yaml": HEAD + "gradient_accumulation_steps: 8\n"}, versions)

    assert lines_of(job, "trainer-accumulation-loss") == expected


@pytest.mark.parametrize(
    ("version", "rules"),
    [("4.38.0", []), ("4.46.0", ["deprecated-key"]), ("5.24.0", ["removed-key"])],
)
def test_a_key_is_judged_by_the_version_of_the_file(tmp_path: Path, version: str, rules: list[str]) -> None:
    job = job_of(tmp_path, {"a.yaml": HEAD + "evaluation_strategy: epoch\n"}, {"transformers": version})

    found = [each.rule for each in job.findings if each.place is not None and each.place.line == 4]
    assert [rule for rule in found if rule.endswith("-key")] == rules


def test_a_key_that_came_later_is_none_yet(tmp_path: Path) -> None:
    text = HEAD + "activation_checkpointing: true\n"

    assert lines_of(job_of(tmp_path, {"a.yaml": text}, {"transformers": "5.0"}), "newer-key") == [4]
    assert lines_of(job_of(tmp_path, {"a.yaml": text}), "newer-key") == []


LOADED: list[tuple[str, str, str, dict[str, str]]] = [
    (
        "load-device-map",
        "AutoModelForCausalLM.from_pretrained('m', device_map='auto')\nTrainingArguments('o', fsdp=True)\n",
        "AutoModelForCausalLM.from_pretrained('m', device_map={'': 0})\nTrainingArguments('o', fsdp=True)\n",
        {},
    ),
    (
        "load-device-map-zero",
        "AutoModelForCausalLM.from_pretrained('m', device_map='auto')\n"
        "TrainingArguments('o', deepspeed={'zero_optimization': {'stage': 3}})\n",
        "AutoModelForCausalLM.from_pretrained('m', device_map='auto')\n"
        "TrainingArguments('o', deepspeed={'zero_optimization': {'stage': 2}})\n",
        {},
    ),
    (
        "load-device-map-alone",
        "AutoModelForCausalLM.from_pretrained('m', device_map='auto')\nTrainingArguments('o')\n",
        "AutoModelForCausalLM.from_pretrained('m')\nTrainingArguments('o')\n",
        {},
    ),
    (
        "load-quantized-full",
        "AutoModelForCausalLM.from_pretrained('m', load_in_8bit=True)\nTrainingArguments('o')\n",
        "AutoModelForCausalLM.from_pretrained('m', load_in_8bit=True)\n"
        "from peft import LoraConfig\nTrainingArguments('o')\n",
        {},
    ),
    (
        "load-half-trained",
        "AutoModelForCausalLM.from_pretrained('m', dtype=torch.float16)\nTrainingArguments('o', fp16=True)\n",
        "AutoModelForCausalLM.from_pretrained('m', dtype=torch.float32)\nTrainingArguments('o', fp16=True)\n",
        {},
    ),
    (
        "load-flash-format",
        "AutoModelForCausalLM.from_pretrained('m', dtype=torch.float32, attn_implementation=FA2)\n"
        "TrainingArguments('o')\n",
        "AutoModelForCausalLM.from_pretrained('m', dtype=torch.float32, attn_implementation=FA2)\n"
        "TrainingArguments('o', bf16=True)\n",
        {},
    ),
    (
        "load-flash-format",
        "AutoModelForCausalLM.from_pretrained('m', attn_implementation=FA2)\nTrainingArguments('o')\n",
        "AutoModelForCausalLM.from_pretrained('m', attn_implementation='sdpa')\nTrainingArguments('o')\n",
        {"transformers": "4.51.0"},
    ),
    (
        "load-quantized-old",
        "from peft import LoraConfig\n"
        "AutoModelForCausalLM.from_pretrained('m', load_in_4bit=True)\n"
        "TrainingArguments('o', deepspeed={'zero_optimization': {'stage': 3}})\n",
        "from peft import LoraConfig\n"
        "AutoModelForCausalLM.from_pretrained('m', load_in_4bit=True)\n"
        "TrainingArguments('o', deepspeed={'zero_optimization': {'stage': 2}})\n",
        {"transformers": "4.40.0"},
    ),
    (
        "trainer-eval-logits",
        "args = TrainingArguments('o', eval_strategy='epoch')\nTrainer(args=args, compute_metrics=f)\n",
        "args = TrainingArguments('o', eval_strategy='epoch')\nTrainer(args=args)\n",
        {},
    ),
    (
        "unknown-key",
        "TrainingArguments('o', colour='red')\n",
        "TrainingArguments('o', run_name='red')\n",
        {},
    ),
]


@pytest.mark.parametrize(
    ("rule", "broken", "nearly", "versions"), LOADED, ids=[f"{i}-{each[0]}" for i, each in enumerate(LOADED)]
)
def test_each_rule_of_python_finds_what_breaks_it_and_nothing_beside(
    tmp_path: Path, rule: str, broken: str, nearly: str, versions: dict[str, str]
) -> None:
    assert len(lines_of(job_of(tmp_path, {"a.py": IMPORTS + broken}, versions), rule)) == 1
    assert lines_of(job_of(tmp_path, {"b.py": IMPORTS + nearly}, versions), rule) == []
