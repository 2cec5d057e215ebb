"""Arguments of the trainer in files, on command lines and in Python, which is never run."""

from pathlib import Path

import pytest

from foreign.judging import job_of, lines_of, values_of

SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Trainer, TrainingArguments
from peft import LoraConfig

MODEL = "meta-llama/Llama-3.1-8B"
GLOBAL_BATCH, RANKS = 64, 8
PER_RANK = 4
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(
    MODEL, quantization_config=bnb, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
lora = LoraConfig(r=32, target_modules="all-linear")
common = {"bf16": True, "learning_rate": 2e-4}
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=PER_RANK,
    gradient_accumulation_steps=32 // (PER_RANK * 2),
    max_steps=100,
    activation_checkpointing=True,
    optim="adamw_torch_fused",
    dataloader_num_workers=workers(),
    **common,
)
Trainer(model=model, args=args).train()
"""


def test_python_gives_arguments_loading_and_adapters(tmp_path: Path) -> None:
    found = job_of(tmp_path, {"train.py": SCRIPT})

    assert values_of(found) == {
        "model": "meta-llama/Llama-3.1-8B",
        "micro_batch": 4,
        "accumulation": 4,  # 32 // (4 * 2)
        "steps": 100,
        "learning_rate": 2e-4,
        "optimizer": "adamw_torch_fused",
        "precision": "bf16",
        "recompute": "full",
        "eval_batch": 8,
        "dtype_weights": "bf16",
        "attention": "flash",
        "method": "qlora",
        "quantized_bits": 4,
        "lora_rank": 32,
    }
    place = found.place("learning_rate")
    assert place is not None
    assert place.line == 14


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"per_device_train_batch_size": 2, "learning_rate": 1e-4, "bf16": true, "max_steps": 7}'),
        ("a.yaml", "per_device_train_batch_size: 2\nlearning_rate: 1.0e-4\nbf16: true\nmax_steps: 7\n"),
        (
            "a.sh",
            "torchrun --nproc-per-node 8 train.py --per_device_train_batch_size 2 --learning_rate=1e-4 "
            "--bf16 --max_steps 7 --gradient_accumulation_steps 1\n",
        ),
        (
            "a.py",
            "from transformers import TrainingArguments\n"
            "TrainingArguments('o', per_device_train_batch_size=2, learning_rate=1e-4,\n"
            "bf16=True, max_steps=7)\n",
        ),
    ],
)
def test_each_form_says_the_same(tmp_path: Path, name: str, text: str) -> None:
    found = values_of(job_of(tmp_path, {name: text}))

    said = {key: found[key] for key in ("micro_batch", "learning_rate", "precision", "steps", "accumulation")}
    assert said == {
        "micro_batch": 2,
        "learning_rate": 1e-4,
        "precision": "bf16",
        "steps": 7,
        "accumulation": 1,
    }


def test_fsdp_stands_in_a_switch_and_a_table(tmp_path: Path) -> None:
    text = (
        '{"per_device_train_batch_size": 1, "fsdp": true, "fsdp_config": {"reshard_after_forward": false,'
        ' "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "activation_checkpointing": true}}'
    )

    found = values_of(job_of(tmp_path, {"a.json": text}))

    assert (found["zero"], found["reshard"], found["recompute"]) == (3, False, "full")
    assert found["wraps"] == ("LlamaDecoderLayer",)


def test_older_versions_shard_by_words(tmp_path: Path) -> None:
    text = '{"per_device_train_batch_size": 1, "fsdp": "shard_grad_op auto_wrap offload"}'

    found = values_of(job_of(tmp_path, {"a.json": text}))

    assert (found["zero"], found["reshard"], found["offload_params"]) == (3, False, "cpu")


def test_deepspeed_is_read_from_its_file_and_inline(tmp_path: Path) -> None:
    code = "from transformers import TrainingArguments\nTrainingArguments('o', deepspeed={})\n"
    inline = code.replace("{}", '{"zero_optimization": {"stage": 2}}')
    named = '{"per_device_train_batch_size": 1, "deepspeed": "z.json"}'

    assert job_of(tmp_path, {"a.py": inline}).value("zero") == 2
    assert (
        job_of(tmp_path, {"a.json": named, "z.json": '{"zero_optimization": {"stage": 3}}'}).value("zero")
        == 3
    )


def test_what_only_a_run_can_tell_is_no_fact(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments\n"
        "TrainingArguments('o', per_device_train_batch_size=args.batch, learning_rate=lr, bf16=ok())\n"
    )

    found = job_of(tmp_path, {"a.py": text})

    assert found.value("micro_batch") is None
    assert found.value("learning_rate") is None
    assert lines_of(found, "wrong-type") == []


def test_names_that_unfold_without_end_are_left_open(tmp_path: Path) -> None:
    lines = [f"x{i} = [{', '.join([f'x{i + 1}'] * 10)}]\n" for i in range(18)]
    text = (
        "from transformers import TrainingArguments\n"
        + "".join(lines)
        + "TrainingArguments('o', report_to=x0)\n"
    )

    assert job_of(tmp_path, {"a.py": text}).value("accumulation") == 1


def test_a_degree_stands_in_the_object_for_parallelism(tmp_path: Path) -> None:
    text = (
        "from accelerate import ParallelismConfig\nfrom transformers import TrainingArguments\n"
        "mesh = ParallelismConfig(dp_shard_size=4, dp_replicate_size=2, tp_size=2)\n"
        "TrainingArguments('o', parallelism_config=mesh)\n"
    )

    found = values_of(job_of(tmp_path, {"a.py": text}))

    assert (found["tp"], found["shard"], found["replicas"]) == (2, 4, 2)
