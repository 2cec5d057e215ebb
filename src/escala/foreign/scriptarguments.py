"""Options that training scripts on Hugging Face's libraries have in common, as facts. Knows no launcher."""

from collections.abc import Iterator, Mapping
from typing import Final

from escala.foreign.facts import Fact, count_of, fact, is_open, number_of, truth_of
from escala.foreign.places import Node

COUNTS: Final = {
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "per_device_eval_batch_size": "eval_batch",
    "max_steps": "steps",
    "max_train_steps": "steps",
    "max_length": "sequence_tokens",
    "max_seq_length": "sequence_tokens",
    "block_size": "sequence_tokens",
    "lora_r": "lora_rank",
}
SWITCHES: Final = {
    "gradient_checkpointing": "recompute",
    "activation_checkpointing": "recompute",
    "torch_compile": "compile",
    "use_liger_kernel": "fused_loss",
}
TEXTS: Final = {"model_name_or_path": "model", "optim": "optimizer"}


def argument_facts(arguments: Mapping[str, Node]) -> Iterator[Fact]:
    """What the options of a script say; negative counts mean "not set"."""
    for name, node in arguments.items():
        said = f"--{name}"
        count = count_of(node)
        if name in COUNTS and count is not None and count > 0:
            yield fact(COUNTS[name], count, node, said)
        elif name in SWITCHES and truth_of(node):
            value = "full" if SWITCHES[name] == "recompute" else True
            yield fact(SWITCHES[name], value, node, said)
        elif name in TEXTS and isinstance(node.value, str) and not is_open(node.value):
            yield fact(TEXTS[name], node.value, node, said)
        elif name == "learning_rate" and (rate := number_of(node)) is not None:
            yield fact("learning_rate", rate, node, said)
