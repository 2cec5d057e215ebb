"""How the weights of a language model can be split over tensor ranks: one word for each module, by pattern.

The words of transformers' own plans and ours; where the library has none for a model, its plan stands here.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from torch import nn

from escala.parallel.absent import Absent


class Word(StrEnum):
    """What tensor ranks do with the weights of a module.

    COLWISE divides outputs and ROWWISE inputs of a linear map; FUSED divides the outputs of queries, keys and
    values packed one after the other. ALIKE weights stay whole and work on the divided part, so that their
    gradients are summed. EMBEDDING and HEAD are divided by vocabulary. POSITIONS are looked up whole, and the
    LAST_NORM gives the head all tokens. COUNT is a number of a module that every rank has its share of.
    """

    COLWISE = "colwise"
    ROWWISE = "rowwise"
    FUSED = "fused"
    ALIKE = "replicated_with_grad_allreduce"
    EMBEDDING = "embedding"
    POSITIONS = "positions"
    LAST_NORM = "last_norm"
    HEAD = "head"
    COUNT = "count"
    EXPERTS = "experts"


OTHER_NAMES: Final = {
    "embedding_rowwise": Word.EMBEDDING,
    "colwise_gather_output": Word.HEAD,
    "colwise_rep": Word.HEAD,
    "moe_tp_experts": Word.EXPERTS,
    "packed_colwise": Word.EXPERTS,
}
"""Words of transformers that mean the same here, as far as its plans for the models named below use them."""
DIVIDING: Final = (Word.COLWISE, Word.FUSED)
"""Whose parents work on divided outputs."""
LINEAR: Final = ("Linear", "Conv1D")
"""Classes of linear maps that are split: torch's, and that of GPT-2 in transformers, which holds W^T."""
PIECES: Final = 3
"""Queries, keys and values."""
OWN_PLANS: Final[Mapping[str, Mapping[str, str]]] = {
    "gpt2": {
        "h.*.attn.c_attn": Word.FUSED,
        "h.*.attn.split_size": Word.COUNT,
        "h.*.attn.c_proj": Word.ROWWISE,
        "h.*.mlp.c_fc": Word.COLWISE,
        "h.*.mlp.c_proj": Word.ROWWISE,
    }
}
"""By the model type of transformers."""


def tensor_plan(model: Any, prefix: str, first: tuple[str, ...], last: tuple[str, ...]) -> dict[str, str]:
    """Words of a causal language model by pattern; none where nobody says how it is split."""
    own = getattr(model, "tensor_plan", None)
    if own is not None:
        return dict(own)
    inside = getattr(model.config, "base_model_tp_plan", None) or OWN_PLANS.get(model.config.model_type)
    if not inside:
        return {}
    found = {f"{prefix}.{pattern}": str(OTHER_NAMES.get(word, word)) for pattern, word in inside.items()}
    return found | _ends(model, first, last)


def _ends(model: Any, first: tuple[str, ...], last: tuple[str, ...]) -> dict[str, str]:
    table = model.get_input_embeddings()
    words = {name: Word.EMBEDDING if model.get_submodule(name) is table else Word.POSITIONS for name in first}
    norms = {name: Word.LAST_NORM for name in last[:-1]}
    return {name: str(word) for name, word in {**words, **norms, last[-1]: Word.HEAD}.items()}


def worded(module: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, nn.Module, str]]:
    """Modules with a word that are held: (name, module, word)."""
    patterns = [(_pattern(pattern), word) for pattern, word in plan.items() if word != Word.COUNT]
    for name, each in module.named_modules():
        for pattern, word in patterns if not isinstance(each, Absent) else ():
            if pattern.fullmatch(name):
                yield name, each, word


def counts(module: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[nn.Module, str]]:
    """Numbers of modules that are divided: (module, name of the attribute)."""
    for pattern, word in plan.items():
        if word == Word.COUNT:
            parent, _, attribute = pattern.rpartition(".")
            matching = _pattern(parent)
            yield from (
                (each, attribute) for name, each in module.named_modules() if matching.fullmatch(name)
            )


def is_experts(module: nn.Module) -> bool:
    """Whether a module is a stack of experts, as ours and those of transformers are."""
    held = {name for name, each in module._parameters.items() if each is not None}
    return {"gate_up_proj", "down_proj"} <= held


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words).replace(r"\*", r"[^.]+"))
