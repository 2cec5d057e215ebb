"""Axolotl's YAML: its facts, and each rule with a file that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from foreign.judging import job_of, lines_of, values_of

BASE = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 2\n"
FSDP2 = "fsdp_version: 2\nfsdp_config:\n  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
FSDP1 = "fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
FLASH = "attn_implementation: flash_attention_2\n"


def test_facts_are_in_the_words_of_the_field(tmp_path: Path) -> None:
    text = (
        BASE
        + "gradient_accumulation_steps: 4\nadapter: qlora\nload_in_4bit: true\nlora_r: 32\nbf16: true\n"
        + "learning_rate: 2e-4\noptimizer: adamw_torch_fused\nsample_packing: true\nnum_epochs: 2\n"
        + "gradient_checkpointing: true\nactivation_offloading: true\n"
        + "dp_shard_size: 4\ndp_replicate_size: 2\n"
        + FLASH
        + FSDP2
        + "  offload_params: true\n  reshard_after_forward: false\n"
    )

    assert values_of(job_of(tmp_path, {"a.yaml": text})) == {
        "model": "meta-llama/Llama-3.1-8B",
        "sequence_tokens": 2048,
        "micro_batch": 2,
        "eval_batch": 2,
        "accumulation": 4,
        "epochs": 2.0,
        "learning_rate": 2e-4,
        "optimizer": "adamw_torch_fused",
        "packing": True,
        "precision": "bf16",
        "attention": "flash",
        "recompute": "full",
        "offload_activations": "cpu",
        "method": "qlora",
        "quantized_bits": 4,
        "lora_rank": 32,
        "zero": 3,
        "reshard": False,
        "shard": 4,
        "replicas": 2,
        "wraps": ("LlamaDecoderLayer",),
        "offload_params": "cpu",
        "offload_optimizer": "cpu",
    }


@pytest.mark.parametrize(
    "line", ["axolotl train a.yaml", "torchrun --nproc-per-node 8 -m axolotl.cli.train a.yaml"]
)
def test_the_command_names_its_file(tmp_path: Path, line: str) -> None:
    found = job_of(tmp_path, {"launch.sh": f"#!/bin/sh\n{line}\n", "a.yaml": BASE})

    assert found.value("sequence_tokens") == 2048
    assert found.value("method") == "full"


def test_precision_that_is_auto_is_left_to_the_device(tmp_path: Path) -> None:
    found = job_of(tmp_path, {"a.yaml": BASE + "bf16: auto\nfp16:\n"})

    assert found.value("precision") is None
    assert found.readings[0].wanted == {"precision"}
    assert lines_of(found, "axolotl-auto-precision") == [4]


BROKEN: list[tuple[str, str, str, str]] = [
    ("axolotl-fsdp1", "fsdp", FSDP1, FSDP2),
    ("axolotl-fsdp-list", "fsdp", FSDP1, FSDP2),
    (
        "axolotl-fsdp-prefix",
        "  fsdp_offload_params",
        FSDP2 + "  fsdp_offload_params: true\n",
        FSDP2 + "  offload_params: true\n",
    ),
    (
        "axolotl-fsdp-offload-8bit",
        "optimizer",
        "optimizer: adamw_torch_8bit\n" + FSDP1 + "  offload_params: true\n",
        "optimizer: adamw_torch_8bit\n" + FSDP2 + "  offload_params: true\n",
    ),
    (
        "axolotl-fsdp-paged-8bit",
        "optimizer",
        "optimizer: paged_adamw_8bit\n" + FSDP2,
        "optimizer: paged_adamw_8bit\n",
    ),
    (
        "axolotl-fsdp2-8bit",
        "optimizer",
        "optimizer: adamw_bnb_8bit\n" + FSDP2,
        "optimizer: adamw_torch_8bit\n" + FSDP2,
    ),
    (
        "axolotl-fsdp2-loading-4bit",
        "  cpu_ram_efficient_loading",
        "adapter: qlora\nload_in_4bit: true\n" + FSDP2 + "  cpu_ram_efficient_loading: true\n",
        FSDP2 + "  cpu_ram_efficient_loading: true\n",
    ),
    (
        "axolotl-fsdp2-quantized-preference",
        "load_in_4bit",
        "rl: dpo\nadapter: qlora\nload_in_4bit: true\n" + FSDP2,
        "rl: dpo\nadapter: lora\n" + FSDP2,
    ),
    ("axolotl-fsdp-and-deepspeed", "fsdp", "deepspeed: {}\n".replace("{}", "z.json") + FSDP1, FSDP1),
    (
        "axolotl-size-wrap",
        "  auto_wrap_policy",
        FSDP2 + "  auto_wrap_policy: SIZE_BASED_WRAP\n",
        FSDP2 + "  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 1000000\n",
    ),
    ("axolotl-quantized-full", "load_in_8bit", "load_in_8bit: true\n", "load_in_8bit: true\nadapter: lora\n"),
    (
        "axolotl-qlora-8bit",
        "load_in_8bit",
        "adapter: qlora\nload_in_8bit: true\n",
        "adapter: lora\nload_in_8bit: true\n",
    ),
    ("axolotl-qlora-whole", "adapter", "adapter: qlora\n", "adapter: qlora\nload_in_4bit: true\n"),
    (
        "axolotl-batch-and-steps",
        "batch_size",
        "batch_size: 8\ngradient_accumulation_steps: 4\n",
        "gradient_accumulation_steps: 4\n",
    ),
    (
        "axolotl-packing-attention",
        "sample_packing",
        "sample_packing: true\n",
        "sample_packing: true\n" + FLASH,
    ),
    (
        "axolotl-eval-unpacked",
        "eval_sample_packing",
        FLASH + "sample_packing: true\neval_sample_packing: false\nval_set_size: 0.1\n",
        FLASH + "sample_packing: true\neval_sample_packing: false\nval_set_size: 0\n",
    ),
    ("axolotl-eval-batch", "eval_batch_size", "eval_batch_size: 8\n", "eval_batch_size: 2\n"),
    (
        "axolotl-checkpointing-word",
        "gradient_checkpointing",
        "gradient_checkpointing: unsloth\n",
        "gradient_checkpointing: offload\n",
    ),
    (
        "axolotl-checkpointing-offload",
        "gradient_checkpointing",
        "gradient_checkpointing: offload\n",
        "gradient_checkpointing: true\nactivation_offloading: true\n",
    ),
    (
        "axolotl-offloading-alone",
        "activation_offloading",
        "activation_offloading: true\n",
        "gradient_checkpointing: true\nactivation_offloading: true\n",
    ),
    (
        "axolotl-context-attention",
        "context_parallel_size",
        "context_parallel_size: 2\nattn_implementation: sdpa\n",
        "context_parallel_size: 2\n" + FLASH,
    ),
    (
        "axolotl-context-packing",
        "micro_batch_size",
        "context_parallel_size: 2\nsample_packing: true\n" + FLASH,
        "context_parallel_size: 2\nsample_packing: false\n" + FLASH,
    ),
    ("axolotl-save-both", "save_steps", "saves_per_epoch: 2\nsave_steps: 50\n", "save_steps: 50\n"),
    ("axolotl-eval-both", "eval_steps", "evals_per_epoch: 2\neval_steps: 50\n", "eval_steps: 50\n"),
    ("axolotl-stream-steps", "streaming", "streaming: true\n", "streaming: true\nmax_steps: 100\n"),
    (
        "axolotl-preference-packing",
        "sample_packing",
        FLASH + "rl: dpo\nsample_packing: true\n",
        FLASH + "rl: dpo\nsample_packing: false\n",
    ),
    (
        "axolotl-losses",
        "chunked_cross_entropy",
        "cut_cross_entropy: true\nchunked_cross_entropy: true\n",
        "cut_cross_entropy: false\nchunked_cross_entropy: true\n",
    ),
    (
        "axolotl-attention-twice",
        "flash_attention",
        FLASH + "flash_attention: true\n",
        FLASH + "flash_attention: false\n",
    ),
    (
        "axolotl-plugin-missing",
        "liger_rope",
        "liger_rope: true\n",
        "liger_rope: true\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n",
    ),
    ("unknown-key-silent", "colour_of_loss", "colour_of_loss: red\n", "loss_watchdog_threshold: 5.0\n"),
    ("misspelt-key-silent", "sample_paking", "sample_paking: true\n", FLASH + "sample_packing: true\n"),
    ("deprecated-key", "sdp_attention", "sdp_attention: true\n", "attn_implementation: sdpa\n"),
]


@pytest.mark.parametrize(("rule", "key", "broken", "nearly"), BROKEN, ids=[each[0] for each in BROKEN])
def test_each_rule_finds_what_breaks_it_and_nothing_beside(
    tmp_path: Path, rule: str, key: str, broken: str, nearly: str
) -> None:
    texts = {"z.json": '{"zero_optimization": {"stage": 2}}'}
    text = BASE + broken
    line = [each.partition(":")[0] for each in text.splitlines()].index(key) + 1

    assert lines_of(job_of(tmp_path, {"a.yaml": text, **texts}), rule) == [line]
    assert lines_of(job_of(tmp_path, {"b.yaml": BASE + nearly, **texts}), rule) == []


def test_the_change_of_the_prefix_writes_all_keys_without_it(tmp_path: Path) -> None:
    text = BASE + FSDP2 + "  fsdp_offload_params: true\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"

    [found] = [
        each for each in job_of(tmp_path, {"a.yaml": text}).findings if each.rule == "axolotl-fsdp-prefix"
    ]

    for edit in sorted(found.edits, key=lambda each: -each.start):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert text.endswith("  offload_params: true\n  state_dict_type: SHARDED_STATE_DICT\n")
