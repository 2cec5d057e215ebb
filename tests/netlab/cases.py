"""Cases of a truth test: which decoder, under which plan. Loads no torch, so that predictions need none."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from escala.model.plan import Plan, Precision, Schedule

SCHEDULES: Final = {"gpipe": Schedule.GPIPE, "1f1b": Schedule.ONE_F_ONE_B}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of one decoder and of its input."""

    layers: int
    hidden: int
    heads: int
    width: int
    vocabulary: int
    tokens: int

    def config(self) -> dict[str, object]:
        """The decoder as a config.json of the Llama family."""
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.tokens,
            "tie_word_embeddings": False,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training job: a way to split, its degrees, the decoder's sizes, the batch of one replica.

    `way` is ddp, fsdp, hsdp, tp, sp, gpipe or 1f1b; the batch is `micro_batches` of `micro_batch` sequences.
    """

    name: str
    way: str
    ranks: int
    shape: dict[str, int] = field(hash=False)
    micro_batch: int = 1
    micro_batches: int = 1

    @property
    def plan(self) -> Plan:
        """The case as a plan of escala."""
        batch: dict[str, Any] = {
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "precision": Precision.FP32,
        }
        ranks = self.ranks
        ways: dict[str, dict[str, Any]] = {
            "ddp": {"dp": ranks},
            "fsdp": {"dp": ranks, "zero": 3, "shard": ranks, "reshard": True},
            "hsdp": {"dp": ranks, "zero": 3, "shard": 2, "reshard": True},
            "tp": {"tp": ranks},
            "sp": {"tp": ranks, "sp": True},
            **{way: {"pp": ranks, "schedule": code} for way, code in SCHEDULES.items()},
        }
        return Plan(**ways[self.way], **batch)

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.plan.dp * self.micro_batch * self.micro_batches

    def as_keys(self) -> dict[str, Any]:
        """The case as JSON for the worker."""
        return asdict(self)


# Sizes in which messages take longer than computation on the networks of a lab. The wide decoder has the most
# parameters for its FLOP (data parallel plans), the thin one the most stream (tensor), the flat one the least
# work in a stage (pipeline).
WIDE: Final = {"layers": 4, "hidden": 256, "heads": 4, "width": 768, "vocabulary": 1024, "tokens": 32}
THIN: Final = {"layers": 4, "hidden": 128, "heads": 4, "width": 384, "vocabulary": 512, "tokens": 128}
FLAT: Final = {"layers": 4, "hidden": 64, "heads": 2, "width": 128, "vocabulary": 256, "tokens": 128}
BATCHES: Final[dict[str, tuple[dict[str, int], int, tuple[int, ...]]]] = {
    "ddp": (WIDE, 1, (1, 4)),
    "fsdp": (WIDE, 1, (1, 2)),
    "hsdp": (WIDE, 1, (1,)),
    "tp": (THIN, 8, (1,)),
    "sp": (THIN, 8, (1,)),
    "gpipe": (FLAT, 16, (4,)),
    "1f1b": (FLAT, 16, (8,)),
}
"""Of each way: the decoder, sequences of a micro-batch, the micro-batches of a step in each of its cases."""


def cases(ranks: int, ways: Iterable[str] = tuple(BATCHES)) -> list[Case]:
    """The usual cases of some ways among so many ranks; HSDP needs two groups of two or more."""
    found = []
    for way in ways:
        shape, micro_batch, steps = BATCHES[way]
        for count in steps if way != "hsdp" or ranks > 2 else ():
            name = f"{way}, {count} micro-batch{'es' * (count > 1)}"
            batch = {"micro_batch": micro_batch, "micro_batches": count}
            found.append(Case(name=name, way=way, ranks=ranks, shape=shape, **batch))
    return found
