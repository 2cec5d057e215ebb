"""Which network a job trains: by the shape that a file has, the name it gives, or the folder it names."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from escala.catalog import networks as catalog
from escala.catalog.families import network_from_config
from escala.errors import InvalidInput, one_line
from escala.foreign.jobs import COMMAND_LINE, Job
from escala.foreign.readings import Reading
from escala.formats.hf import FILE_NAME, read_network
from escala.formats.networks import HUB_PREFIX, find_network
from escala.model.network import Network

SAME_SHAPE: Final = frozenset(
    (
        *("instruct", "chat", "hf", "it", "base", "pt", "meta", "sft", "dpo", "unsloth", "text"),
        *("bnb", "4bit", "8bit", "awq", "gptq", "int4", "int8", "bf16", "fp16", "fp8"),
    )
)
"""Words of names on the hub that tell apart weights of one shape."""
DATE: Final = re.compile(r"\d{4}")
VOCABULARY: Final = 50_304
"""Words of GPT-2's tokenizer, padded to a multiple of 128, where a file has sizes without a vocabulary."""
VERSION: Final = re.compile(r"v\d+(\.\d+)?")


def network_of(job: Job) -> tuple[Network | None, str]:
    """The network of a job and how it was found; without one, why there is none.

    Raises InvalidInput for a network of the command line that is none.
    """
    said = job.facts.get("model")
    if said is not None and said.place.file == COMMAND_LINE:
        return _given(str(said.value)), ""
    reason = "no file names the model"
    for found, why in _by_files(job):
        if found is not None:
            return found, why
        reason = why
    return None, reason


def _given(name: str) -> Network:
    known = None if name.startswith(HUB_PREFIX) or os.path.exists(name) else same_shape(name)
    try:
        return find_network(name)
    except InvalidInput:
        if known is None:
            raise
        return catalog.network(known)


def _by_files(job: Job) -> Iterator[tuple[Network | None, str]]:
    for reading in job.readings:
        if reading.shape is not None:
            name = str(job.value("model") or Path(reading.document.file).stem)
            words, why = (0, "") if "vocab_size" in reading.shape else _vocabulary(reading)
            shape = {**reading.shape, **({"vocab_size": words} if words else {})}
            try:
                yield network_from_config(shape, name, reading.document.file), why
            except InvalidInput as error:
                yield None, f"the sizes in {reading.document.name} make no network: {error}"
    said = job.facts.get("model")
    if said is not None:
        yield _named(str(said.value), Path(said.place.file).parent)


def _vocabulary(reading: Reading) -> tuple[int, str]:
    """Words where a file does not count them: those of the model that its tokenizer is named for."""
    tokenizer = reading.extra.get("tokenizer")
    usual = f"{VOCABULARY:,} words, those of GPT-2"
    if not isinstance(tokenizer, tuple):
        return VOCABULARY, f"has no vocabulary in the file: {usual}"
    name, multiple = tokenizer
    known = same_shape(name)
    embedding = None if known is None else catalog.network(known).main.embedding
    if embedding is None:
        return VOCABULARY, f"has a vocabulary that only '{one_line(name)}' tells: {usual}"
    rows = -(-embedding.vocab // multiple) * multiple
    return rows, f"has the vocabulary of '{one_line(name)}' by its name: {rows:,} rows with padding"


def _named(name: str, folder: Path) -> tuple[Network | None, str]:
    for path in (folder / name, Path(name)):
        if name and os.path.isfile(path / FILE_NAME):
            try:
                return read_network(path), ""
            except InvalidInput as error:
                return None, str(error)
    try:
        return catalog.network(name), ""
    except InvalidInput:
        known = same_shape(name)
    if known is None:
        return None, f"the model '{name}' is not in the catalog"
    return catalog.network(known), f"'{name}' has its shape"


def same_shape(name: str) -> str | None:
    """The network of the catalog whose shape the variant of a hub name has; None without one or with two."""
    last = name.rstrip("/").rpartition("/")[2]
    for keeps_version in (True, False):
        found = _shapes(keeps_version).get(_core(last, keeps_version), frozenset())
        exact = {each for each in found if _core(each, True) == _core(last, keeps_version)}
        if len(exact or found) == 1:
            return next(iter(exact or found))
    return None


def _core(name: str, keeps_version: bool) -> str:
    words = [word for word in re.split(r"[-_ ]", name.lower()) if word not in SAME_SHAPE]
    kept = [word for word in words if not DATE.fullmatch(word)]
    return "-".join(word for word in kept if keeps_version or not VERSION.fullmatch(word))


@cache
def _shapes(keeps_version: bool) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name in catalog.names():
        hub = catalog.describe(name).hub or name
        for each in (name, hub.rpartition("/")[2]):
            found.setdefault(_core(each, keeps_version), set()).add(name)
    return {core: frozenset(names) for core, names in found.items()}
