"""Python that builds a Trainer: its arguments, how it loads the model, which adapters. Knows no condition."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.places import Node
from escala.foreign.pythoncalls import Called, Calls
from escala.foreign.pythontext import imported

CLASSES: Final = (
    "TrainingArguments",
    "Seq2SeqTrainingArguments",
    "SFTConfig",
    "DPOConfig",
    "GRPOConfig",
    "KTOConfig",
    "RewardConfig",
    "RLOOConfig",
)
TRAINERS: Final = frozenset(
    (
        "Trainer",
        "Seq2SeqTrainer",
        *(f"{kind}Trainer" for kind in ("SFT", "DPO", "GRPO", "KTO", "Reward", "RLOO")),
    )
)
LOADERS: Final = frozenset(("from_pretrained",))
NOT_MODELS: Final = ("Tokenizer", "Processor", "Config", "Extractor", "Peft", "tokenizer", "processor")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Built:
    """What a text builds: calls of argument classes, of loaders of models, of adapters, of trainers."""

    calls: Calls
    arguments: tuple[Called, ...]
    loads: tuple[Called, ...]
    adapters: tuple[Called, ...]
    trainers: tuple[Called, ...]

    @property
    def uses_adapters(self) -> bool:
        """Whether PEFT takes part in any way."""
        return bool(self.adapters) or imported(self.calls.tree, "peft", "unsloth")


def built(document: Document) -> Built:
    """What a Python document builds."""
    calls = Calls(document)
    return Built(
        calls=calls,
        arguments=tuple(calls.named(*CLASSES)),
        loads=tuple(_loads(calls)),
        adapters=tuple(calls.named("LoraConfig")),
        trainers=tuple(each for each in calls.all if each.name in TRAINERS),
    )


def _loads(calls: Calls) -> Iterator[Called]:
    for each in calls.named(*LOADERS):
        if not any(name in each.owner for name in NOT_MODELS) and each.owner:
            yield each


def quantized(load: Called) -> tuple[int, Node] | None:
    """Bits of the weights that are loaded, and where it is said."""
    for table in (load.keywords, load.keywords.table.get("quantization_config")):
        for key, bits in (("load_in_4bit", 4), ("load_in_8bit", 8)):
            node = table.table.get(key) if table is not None else None
            if node is not None and node.scalar is True:
                return bits, node
    return None
