"""Classes of modules in model families: the repeated blocks that FSDP wraps, and the blocks of experts.

The table is data/modules.json, written by `scripts/keys modules` from transformers' own classes.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Classes of one model type: `blocks` are not split over devices, `experts` are blocks of experts."""

    blocks: tuple[str, ...] = ()
    experts: tuple[str, ...] = ()


class Modules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All model types, and where the names come from."""

    source: str
    families: dict[str, Family]


@cache
def modules() -> Modules:
    """The table."""
    content = files("escala.foreign").joinpath("data/modules.json").read_bytes()
    return msgspec.json.decode(content, type=Modules)


def families() -> Mapping[str, Family]:
    """The families by the names that configurations of Hugging Face call `model_type`."""
    return modules().families


@cache
def families_of(block: str) -> tuple[str, ...]:
    """The families that have a class among their blocks."""
    return tuple(name for name, family in families().items() if block in family.blocks)


@cache
def all_blocks() -> tuple[str, ...]:
    """Every block class of every family."""
    return tuple(sorted({block for family in families().values() for block in family.blocks}))


@cache
def family_of(model: str) -> str | None:
    """The family that a model's name begins with, at any word: "meta-llama/Llama-3.1-8B" is llama.

    "A3B" and the like say that experts are meant. None where no word of the name is a family.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", model.rstrip("/").rpartition("/")[2].lower()) if word]
    known = {name.replace("_", "").replace("-", ""): name for name in families()}
    for start in range(len(words)):
        for stop in range(len(words), start, -1):
            found = known.get("".join(words[start:stop]))
            if found is not None:
                with_experts = f"{found}_moe"
                sparse = any(re.fullmatch(r"a\d+b?", word) for word in words[stop:])
                return with_experts if sparse and with_experts in families() else found
    return None
