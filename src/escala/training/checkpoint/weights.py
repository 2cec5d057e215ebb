"""A checkpoint as weights for others: safetensors and config.json. Knows their names and no process group."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from escala.errors import InvalidInput, MissingExtra
from escala.parallel.lora import ADAPTER
from escala.training.checkpoint.facts import read_facts
from escala.training.checkpoint.folders import PARTIAL, remove, sync
from escala.training.checkpoint.saving import expect_one_process
from escala.training.checkpoint.tensors import MODEL

INSTALL: Final = "pip install 'escala[hf]'"
SHARD: Final = "5GB"
"""Above this transformers, too, splits weights into several files with an index."""
KIND: Final = "model_type"
"""The key by which transformers knows the class of a config.json."""
HEAD: Final = "lm_head.weight"
MOMENTA: Final = f"{MODEL}outer_momentum/"
"""What replicas with local steps keep beside the weights."""


def export(folder: Path, out: Path) -> Path:
    """Write the model of a whole checkpoint as safetensors with its config.json; needs memory for it once.

    A network that transformers does not know gets its description as network.json instead.
    """
    try:
        from huggingface_hub import save_torch_state_dict
    except ImportError:
        raise MissingExtra(f"writing safetensors needs huggingface_hub and safetensors: {INSTALL}") from None
    if out.exists():
        raise InvalidInput(f"{out} is there already; name a new folder")
    config = read_facts(folder).config
    if not config:
        raise InvalidInput(f"{folder} holds no description of its network to make config.json of")
    weights = _weights(folder, config)
    partial = out.with_name(out.name + PARTIAL)
    remove(partial)
    try:
        partial.mkdir(parents=True)
        save_torch_state_dict(weights, partial, max_shard_size=SHARD)
        _write_config(partial, config, weights)
        sync(partial)
        partial.rename(out)
    except OSError as error:
        remove(partial)
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{out} cannot be written ({reason}); name another folder") from None
    return out


def _weights(folder: Path, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All tensors of the model, whole, on the host."""
    reader = dcp.FileSystemReader(folder)
    saved = {
        name: torch.empty(meta.size, dtype=meta.properties.dtype)
        for name, meta in reader.read_metadata().state_dict_metadata.items()
        if _is_weight(name) and isinstance(meta, TensorStorageMetadata)
    }
    planner = dcp.DefaultLoadPlanner(flatten_state_dict=False)
    expect_one_process()
    dcp.load(saved, storage_reader=reader, planner=planner, no_dist=True)
    weights = {name.removeprefix(MODEL): tensor for name, tensor in saved.items()}
    if any(ADAPTER in name for name in weights):
        raise InvalidInput(
            f"{folder} holds adapters beside frozen weights, which transformers does not load as one model; "
            "resume it and merge them (peft's merge_adapter), then save_pretrained"
        )
    if config.get("tie_word_embeddings"):
        weights.pop(HEAD, None)  # transformers takes the embedding for it
    return weights


def _is_weight(name: str) -> bool:
    return name.startswith(MODEL) and not name.startswith(MOMENTA)


def _write_config(partial: Path, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> None:
    name = "config.json" if KIND in config else "network.json"
    keys = dict(config)
    if KIND in config:
        keys["dtype"] = str(next(iter(weights.values())).dtype).removeprefix("torch.")
    (partial / name).write_bytes(msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n")
