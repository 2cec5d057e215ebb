"""Words without which a file is none of a tool's, so that only tools that may know it are loaded and asked.

A sign is written in small letters with underscores, as the text is compared; "" stands in every text. A tool
whose `score` learns of another way to be known needs it here too: its test compares both for every file.
"""

from collections.abc import Mapping
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.places import every

ANY: Final = ("",)
Signs = Mapping[Syntax, tuple[str, ...]]

SIGNS: Final[Mapping[str, Signs]] = {
    "escala": {Syntax.JSON: ("escala/",)},
    "deepspeed": {
        Syntax.JSON: (
            *("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "fp16", "bf16"),
            *("gradient_accumulation_steps", "activation_checkpointing", "slots="),
        ),
        Syntax.SHELL: ("deepspeed", "slots="),
        **dict.fromkeys((Syntax.YAML, Syntax.TOML, Syntax.PYTHON), ("slots=",)),
    },
    "accelerate": {
        Syntax.SHELL: ("accelerate",),
        **dict.fromkeys(
            (Syntax.YAML, Syntax.JSON),
            (
                *("distributed_type", "compute_environment", "num_processes", "num_machines"),
                *("machine_rank", "main_training_function", "fsdp_config", "deepspeed_config"),
                *("megatron_lm_config", "parallelism_config", "dynamo_config"),
            ),
        ),
    },
    "llamafactory": {
        Syntax.SHELL: ("llamafactory_cli", "lmf"),
        **dict.fromkeys(
            (Syntax.YAML, Syntax.JSON),
            ("finetuning_type", "cutoff_len", "template", "lora_target", "dataset_dir"),
        ),
    },
    "axolotl": {
        Syntax.SHELL: ("axolotl",),
        **dict.fromkeys((Syntax.YAML, Syntax.JSON), ("base_model",)),
    },
    "trl": {Syntax.SHELL: ("trl",), Syntax.YAML: ("model_name_or_path",)},
    "transformers": {
        Syntax.PYTHON: ("arguments", "config", "from_pretrained"),
        Syntax.SHELL: ("output_dir", "per_device", "per_gpu"),
        **dict.fromkeys((Syntax.YAML, Syntax.JSON, Syntax.TOML), ANY),
    },
    "megatron": {
        Syntax.SHELL: (
            *("model_parallel_size", "micro_batch_size", "global_batch_size", "num_layers", "hidden_size"),
            *("num_attention_heads", "seq_length"),
        ),
        Syntax.YAML: ("language_model",),
    },
    "megatron_bridge": {
        Syntax.PYTHON: ("megatron",),
        Syntax.SHELL: (
            *("parallel_size", "batch_size", "optimizer_instances", "pipeline_stage", "moe_experts"),
            *("seq_length", "train_iters"),
        ),
    },
    "maxtext": {
        Syntax.SHELL: ("maxtext",),
        Syntax.YAML: (
            *("_parallelism", "per_device_batch_size", "remat_policy", "base_emb_dim", "max_target_length"),
            "base_output_directory",
        ),
    },
    "automodel": {Syntax.YAML: ("nemo_automodel", "step_scheduler")},
    "torchrun": {Syntax.SHELL: ("torchrun", "torch.distributed")},
    "script": {Syntax.PYTHON: ("torch", "accelerate", ".backward()")},
    "slurm": {Syntax.SHELL: ("#sbatch",)},
    "environment": {Syntax.SHELL: ANY, Syntax.PYTHON: ("environ",)},
    "torchtitan": {
        Syntax.TOML: ("job", "model", "training", "optimizer", "lr_scheduler", "metrics", "experimental"),
        Syntax.PYTHON: ("torchtitan",),
        Syntax.SHELL: ("torchtitan", "run_train.sh"),
    },
    "torchtune": {Syntax.YAML: ("torchtune.",)},
    "lightning": {
        Syntax.PYTHON: ("lightning", "litgpt"),
        **dict.fromkeys((Syntax.YAML, Syntax.JSON, Syntax.TOML), ("trainer",)),
    },
    "kubernetes": dict.fromkeys((Syntax.YAML, Syntax.JSON), ("apiversion",)),
    "skypilot": {
        Syntax.YAML: ("num_nodes", "envs", "file_mounts", "workdir", "resources", "secrets"),
    },
    "tensorflow": {
        Syntax.JSON: ("cluster",),
        Syntax.SHELL: ("tf_config",),
        Syntax.PYTHON: ("tensorflow", "keras", "tf_config"),
    },
    "flower": {Syntax.TOML: ("flwr",)},
}
"""By the names of the tools, in the order in which they are asked; of equal scores the first counts."""


def candidates(document: Document) -> list[str]:
    """The tools that may know a document, in their order."""
    letters = _compared(document)
    return [
        name
        for name, signs in SIGNS.items()
        if any(sign in letters for sign in signs.get(document.syntax, ()))
    ]


def _compared(document: Document) -> str:
    """The text, in a tree with its escapes read, in a script with its variables filled in."""
    script, tree = document.script, document.tree
    words = [word.text for each in script.all_commands for word in each.words] if script is not None else []
    if tree is not None and "\\" in document.text:
        words += [text for path, node in every(tree) for text in (*path[-1:], str(node.scalar))]
    return " ".join((document.text, *words)).lower().replace("-", "_")
