"""Options that training scripts on Hugging Face's libraries have in common, as facts. Knows no launcher."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from escala.foreign.facts import Fact
from escala.foreign.mapped import Keys, facts_in, positive, text_of
from escala.foreign.places import Node, Place
from escala.foreign.transformers.arguments import BATCH, recompute

KEYS: Final[Keys] = {
    **BATCH,
    "max_train_steps": ("steps", positive),
    "max_length": ("sequence_tokens", positive),
    "max_seq_length": ("sequence_tokens", positive),
    "block_size": ("sequence_tokens", positive),
    "lora_r": ("lora_rank", positive),
    "model_name_or_path": ("model", text_of),
}
"""Arguments of the trainer, and what the examples of its libraries call the rest."""
NOWHERE: Final = Place(file="", line=0)


def argument_facts(arguments: Mapping[str, Node]) -> Iterator[Fact]:
    """What the options of a script say; negative counts mean "not set"."""
    given = Node(value=dict(arguments), place=NOWHERE)
    for each in (*facts_in(given, KEYS), *recompute(given)):
        yield replace(each, said=f"--{each.said}")
