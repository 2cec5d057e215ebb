"""A checkpoint as weights for others: safetensors and their description. Knows no process group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from escala.errors import InvalidInput, MissingExtra
from escala.parallel.lora import ADAPTER, BASE_MODEL
from escala.training.checkpoint.adapters import adapters_alone, merged
from escala.training.checkpoint.facts import Facts, read_facts
from escala.training.checkpoint.folders import PARTIAL, remove, sync
from escala.training.checkpoint.saving import expect_one_process
from escala.training.checkpoint.tensors import MODEL

SCHEMA: Final = "escala/export@1"
INSTALL: Final = "pip install 'escala[hf]'"
SHARD: Final = "5GB"
"""Above this transformers, too, splits weights into several files with an index."""
KIND: Final = "model_type"
"""The key by which transformers knows the class of a config.json."""
HEAD: Final = "lm_head.weight"
MOMENTA: Final = f"{MODEL}outer_momentum/"
"""What replicas with local steps keep beside the weights."""
ONE_FILE: Final = 2**62
"""peft reads adapters from one file, however large."""


class Form(StrEnum):
    """What is written: a model that was trained whole, adapters alone, or adapters added to their base."""

    MODEL = "model"
    ADAPTER = "adapter"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote, of which step. Schema escala/export@1; `notes` say what to know of it."""

    schema: str
    checkpoint: str
    step: int
    form: Form
    folder: str
    parameters: int
    bytes: int
    files: tuple[str, ...]
    notes: tuple[str, ...]


def export(folder: Path, out: Path, form: Form | None = None) -> Exported:
    """Write the model of a whole checkpoint as safetensors; needs memory for it once.

    Beside it goes config.json where transformers knows the network, network.json where it does not, and
    adapter_config.json with adapters alone. Without a form it is the whole model; adapters need one.
    """
    _refuse_absent_library()
    if out.exists():
        raise InvalidInput(f"{out} is there already; name a new folder")
    facts, names = read_facts(folder), weight_names(folder)
    form = _form(folder, names, form)
    if form is not Form.MODEL and not facts.adapter:
        raise InvalidInput(
            f"{folder} does not say how its adapters are scaled (an earlier escala wrote it); "
            "resume the run for a step, then export that"
        )
    if form is not Form.ADAPTER and not facts.config:
        raise InvalidInput(f"{folder} holds no description of its network to make config.json of")
    if form is Form.ADAPTER:
        weights = adapters_alone(read_weights(folder, lambda name: ADAPTER in name))
        written = _written(out, weights, {"adapter_config.json": facts.adapter}, "adapter_model")
    else:
        weights = read_weights(folder, lambda name: True)
        weights = merged(weights, facts.adapter) if form is Form.MERGED else weights
        if facts.config.get("tie_word_embeddings"):
            weights.pop(HEAD, None)  # transformers takes the embedding for it
        written = _written(out, weights, _config(facts.config, weights), "model")
    return Exported(
        schema=SCHEMA,
        checkpoint=str(folder),
        step=facts.step,
        form=form,
        folder=str(out),
        parameters=sum(each.numel() for each in weights.values()),
        bytes=sum((out / name).stat().st_size for name in written),
        files=written,
        notes=_notes(facts, form),
    )


def _refuse_absent_library() -> None:
    if find_spec("huggingface_hub") is None or find_spec("safetensors") is None:
        raise MissingExtra(f"writing safetensors needs huggingface_hub and safetensors: {INSTALL}")


def _form(folder: Path, names: tuple[str, ...], form: Form | None) -> Form:
    has_adapters = any(ADAPTER in name for name in names)
    if has_adapters and form in (None, Form.MODEL):
        raise InvalidInput(
            f"{folder} holds adapters beside frozen weights; write them alone with --adapter, "
            "or added to the weights with --merged"
        )
    if not has_adapters and form not in (None, Form.MODEL):
        raise InvalidInput(f"{folder} holds a model without adapters; leave --{form} out")
    return form or Form.MODEL


def weight_names(folder: Path) -> tuple[str, ...]:
    """The tensors of the model in a checkpoint, by their names in the whole model."""
    saved = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata.items()
    return tuple(
        name.removeprefix(MODEL)
        for name, meta in saved
        if name.startswith(MODEL) and not name.startswith(MOMENTA) and isinstance(meta, TensorStorageMetadata)
    )


def read_weights(folder: Path, is_wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Tensors of the model, whole, on the host."""
    reader = dcp.FileSystemReader(folder)
    metadata = reader.read_metadata().state_dict_metadata
    saved = {
        f"{MODEL}{name}": torch.empty(
            metadata[f"{MODEL}{name}"].size, dtype=metadata[f"{MODEL}{name}"].properties.dtype
        )
        for name in weight_names(folder)
        if is_wanted(name)
    }
    planner = dcp.DefaultLoadPlanner(flatten_state_dict=False)
    expect_one_process()
    dcp.load(saved, storage_reader=reader, planner=planner, no_dist=True)
    return {name.removeprefix(MODEL): tensor for name, tensor in saved.items()}


def _written(
    out: Path, weights: dict[str, torch.Tensor], texts: Mapping[str, Mapping[str, Any]], stem: str
) -> tuple[str, ...]:
    """Write the folder whole or not at all; the names of its files."""
    from huggingface_hub import save_torch_state_dict

    partial = out.with_name(out.name + PARTIAL)
    remove(partial)
    try:
        partial.mkdir(parents=True)
        pattern = f"{stem}{{suffix}}.safetensors"
        most = SHARD if stem == "model" else ONE_FILE
        save_torch_state_dict(weights, partial, filename_pattern=pattern, max_shard_size=most)
        for name, keys in texts.items():
            (partial / name).write_bytes(msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n")
        sync(partial)
        partial.rename(out)
    except OSError as error:
        remove(partial)
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{out} cannot be written ({reason}); name another folder") from None
    return tuple(sorted(path.name for path in out.iterdir()))


def _config(config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> dict[str, Mapping[str, Any]]:
    if KIND not in config:
        return {"network.json": config}
    dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
    return {"config.json": {**config, "dtype": dtype}}


def _notes(facts: Facts, form: Form) -> tuple[str, ...]:
    if form is not Form.ADAPTER or facts.adapter.get(BASE_MODEL):
        return ()
    return (
        "the weights under the adapters were no folder's: they came from the run's seed or the module's own "
        "code, so only --merged brings them along",
    )
