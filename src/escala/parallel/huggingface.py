"""Language models of transformers made to call escala's attention. Knows that library; knows no plan.

Their attention goes through one function of ours, so that context parallelism, documents and sliding windows
have one place in all of them; their masks, caches and losses are not used.
"""

import sys
from typing import Any, Final

import torch
from torch import nn

from escala.errors import InvalidInput
from escala.parallel.nets.attention import Core, local_attention
from escala.parallel.parts import Parts

ATTENTION: Final = "escala"
"""The name under which transformers finds our attention."""
LEAST_VERSION: Final = 5
"""Layers that return a tensor, stacked experts and words passed down to attention are of transformers 5."""
WITHOUT_EFFECT: Final = frozenset(
    {
        "position_ids", "use_cache", "cache", "past_key_values", "cache_position",
        "output_attentions", "output_hidden_states", "output_router_logits",
    }
)  # fmt: skip
"""Words that models pass down to attention and that change nothing in a whole sequence without a cache."""
RANDOM: Final = ("dropout", "pdrop", "dropout_prob", "layerdrop", "drop_path_rate", "jitter_noise")
"""How keys end that make a forward pass random in training."""


def is_of_transformers(module: nn.Module) -> bool:
    """Whether a module is a model of transformers; loads nothing."""
    library = sys.modules.get("transformers.modeling_utils")
    return library is not None and isinstance(module, library.PreTrainedModel)


def adopt(model: nn.Module, parts: Parts) -> None:
    """Make a language model of transformers attend through escala; others stay as they are.

    Raises InvalidInput for what would make losses differ between layouts, before anything is changed.
    """
    if not is_of_transformers(model) or not parts.takes_documents:
        return
    _refuse(model, parts)
    _register()
    model.config.use_cache = False
    model.set_attn_implementation(ATTENTION)
    assert model.config._attn_implementation == ATTENTION


def attentions(module: nn.Module) -> list[Any]:
    """The attention modules inside, ours and those of transformers, whose `core` a pass may replace."""
    return [each for each in module.modules() if hasattr(each, "core") or _is_attention(each)]


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    documents: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: (n, heads, tokens, dim) in, (n, tokens, heads, dim) out."""
    unknown = sorted(name for name in given.keys() - WITHOUT_EFFECT if given[name] is not None)
    causal = module.is_causal if is_causal is None else is_causal
    problems = [f"{name} is passed to it" for name in unknown]
    problems += [] if attention_mask is None else ["a mask is passed to it; give documents instead"]
    problems += [] if causal else ["it is not causal"]
    problems += [f"it drops {dropout}"] if dropout else []
    if problems:
        raise InvalidInput(f"{type(module).__name__} cannot attend through escala: {problems[0]}")
    core: Core = getattr(module, "core", local_attention)
    mixed = core(
        query,
        key,
        value,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
        documents=documents,
    )
    return mixed.transpose(1, 2), None


def dropouts(config: Any) -> dict[str, float]:
    """What a configuration asks to drop at random, by key."""
    found = {name: value for name, value in vars(config).items() if name.endswith(RANDOM)}
    return {
        name: value
        for name, value in found.items()
        if value
        and isinstance(value, float)
        and not name.startswith(("summary_", "classifier_"))  # of other heads than a language model's
    }


def _register() -> None:
    from transformers import AttentionInterface

    # No mask of that name is registered: transformers then makes none.
    AttentionInterface.register(ATTENTION, attend)


def _is_attention(module: Any) -> bool:
    return hasattr(module, "is_causal") and hasattr(module, "layer_idx")


def _passes_tokens_by(where: str, module: nn.Module) -> bool:
    """Whether a module mixes tokens past attention, or says which keys attention sees."""
    return isinstance(module, nn.Conv1d) or where.rpartition(".")[2] == "indexer"


def _refuse(model: Any, parts: Parts) -> None:
    import transformers

    name = type(model).__name__
    if int(transformers.__version__.partition(".")[0]) < LEAST_VERSION:
        raise InvalidInput(f"transformers {transformers.__version__} is too old; install transformers>=5")
    if model.config.is_encoder_decoder or not model._supports_attention_backend:
        raise InvalidInput(f"the attention of {name} cannot be replaced; choose a decoder that allows it")
    without = [block for block in parts.blocks if not attentions(model.get_submodule(block))]
    if without:
        raise InvalidInput(f"{name} has blocks without attention ({without[0]}); it is not run yet")
    mixing = [where for where, each in model.named_modules() if _passes_tokens_by(where, each)]
    if mixing:
        raise InvalidInput(f"{name} mixes tokens or selects keys beside attention ({mixing[0]}): not run yet")
    dropped = dropouts(model.config)
    if dropped:
        said = ", ".join(f"{key} {value}" for key, value in dropped.items())
        raise InvalidInput(f"{name} drops at random ({said}), and layouts would differ; set them to 0.0")
    if any(getattr(each, "gradient_checkpointing", False) for each in model.modules()):
        raise InvalidInput(f"{name} recomputes by itself; disable it: the plan says what is recomputed")
    if getattr(model.config, "output_router_logits", False):
        raise InvalidInput(f"{name} asks for its routers' loss, which is not run; unset output_router_logits")
