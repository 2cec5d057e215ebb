"""The module that a run trains: our decoder of a network, a Hugging Face model, or a person's own."""

from typing import Any, Final

import torch
from torch import nn

from escala.errors import InvalidInput, one_line
from escala.measurement.job.fault import user_code
from escala.measurement.job.target import imported, names_function
from escala.measurement.modules.request import names_in
from escala.model.network import Network
from escala.parallel.nets.decoder import Decoder

RETURNS: Final = "a torch.nn.Module, or (module, names of its repeated blocks, ...)"


def built(module: str | None, network: Network, seed: int) -> tuple[nn.Module, tuple[str, ...] | None]:
    """The whole module, with the weights that the seed gives on every rank; its blocks, if it names them."""
    torch.manual_seed(seed)
    if module is None:
        return Decoder(network), None
    if names_function(module):
        return _own(module)
    from escala.parallel.models import model_of

    return model_of(module), None


def refuse_fewer_tokens(module: nn.Module, network: Network) -> None:
    """Refuse a module that knows fewer tokens than the plan's network, whose samples it would be given."""
    table = next((each for each in module.modules() if isinstance(each, nn.Embedding)), None)
    planned = 0 if network.main.embedding is None else network.main.embedding.vocab
    if table is not None and table.num_embeddings < planned:
        raise InvalidInput(
            f"the module knows {table.num_embeddings:,} tokens and the plan's network {planned:,}; "
            "plan with the config.json of the module"
        )


def _own(target: str) -> tuple[nn.Module, tuple[str, ...] | None]:
    function = imported(target)
    with user_code(target):
        made: Any = function()
    module, *rest = made if isinstance(made, tuple) and made else (made,)
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"{one_line(target)} returned {type(made).__name__}; return {RETURNS}")
    return module, names_in(rest)


def facts_of(module: nn.Module, network: Network) -> dict[str, Any]:
    """What an export needs to build the module again: the config of transformers, or the network's name."""
    config = getattr(module, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        return {**config.to_dict(), "architectures": [type(module).__name__]}
    return {"escala_network": network.name}


def named_base(module: str | None) -> str | None:
    """The model under adapters, as peft names it: a folder with weights; None where they are random."""
    from escala.parallel.models import has_weights

    return module if module is not None and not names_function(module) and has_weights(module) else None
