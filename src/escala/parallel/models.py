"""A model to train from whatever a person names: ours from a description, or one of transformers.

Names of the catalogue and escala's own descriptions are built in plain PyTorch; a config.json, a folder that
holds one and hf:owner/name by transformers, with the weights of the folder where it has some.
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from escala.errors import InvalidInput, MissingExtra, one_line
from escala.formats.files import read_keys
from escala.formats.networks import HUB_PREFIX, find_config, find_network
from escala.inputs import reason
from escala.parallel.huggingface import dropouts
from escala.parallel.nets.decoder import Decoder

INSTALL: Final = "pip install 'escala[hf,torch]'"
WEIGHTS: Final = ("*.safetensors", "pytorch_model*.bin")


def model_of(given: str) -> nn.Module:
    """The model that a name or path means: fp32, on the default device, dropout off.

    Weights are those of a folder where it has some, else random by torch's seed; none are downloaded.
    """
    if not _is_config(given):
        return Decoder(find_network(given))
    keys = find_config(given)
    config = config_of(keys, given)
    for key in dropouts(config):
        setattr(config, key, 0.0)
    made = class_of(keys, given)
    if has_weights(given):
        return made.from_pretrained(given, config=config, dtype=torch.float32, local_files_only=True)
    return made._from_config(config, dtype=torch.float32)


def has_weights(given: str) -> bool:
    """Whether a name is a folder with trained weights."""
    folder = Path(given)
    return folder.is_dir() and any(any(folder.glob(pattern)) for pattern in WEIGHTS)


def config_of(keys: Mapping[str, object], origin: str) -> Any:
    """The configuration of transformers for the keys of a config.json, without a cache."""
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtra(f"running {origin} needs transformers, which is not installed: {INSTALL}")
    from transformers import AutoConfig

    kind = str(keys.get("model_type", ""))
    rest = {key: value for key, value in keys.items() if key not in ("model_type", "architectures")}
    try:
        config = AutoConfig.for_model(kind, **rest)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"{origin} is no config of transformers ({reason(error)}); check it") from None
    config.use_cache = False
    return config


def class_of(keys: Mapping[str, object], origin: str) -> Any:
    """The class of transformers that a config.json names first among its architectures."""
    import transformers

    named = keys.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    if not name:
        raise InvalidInput(f"{origin} names no class; add its architectures, as in ['LlamaForCausalLM']")
    made = getattr(transformers, name, None)
    if made is None:
        said = f"transformers {transformers.__version__} has no class {one_line(name)}"
        raise InvalidInput(f"{origin}: {said}; use another version")
    return made


def _is_config(given: str) -> bool:
    path = Path(given)
    if given.startswith(HUB_PREFIX) or path.is_dir():
        return True
    return path.suffix.lower() == ".json" and "network" not in read_keys(path)
