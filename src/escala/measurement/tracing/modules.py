"""The real module of a chunk on the meta device: what transformers builds from a config.json, cut to layers.

Dropout is off and attention is torch's fused kernel, as pretraining runs it.
"""

from typing import Any, Final

import torch
import transformers
from torch import nn

from escala.errors import InvalidInput
from escala.measurement.tracing.jobs import Chunk, Job
from escala.measurement.tracing.packing import never_packed
from escala.model.plan import Plan
from escala.parallel.indivisible import tensor_reasons
from escala.parallel.parts import Parts
from escala.parallel.words import Word, tensor_plan

STEM, HEAD = "model", "lm_head"
"""Names of the stack and of the head in such a model."""
STACK: Final = ("embed_tokens", "layers", "norm", "rotary_emb")
"""What the stack of a decoder has to have so that it can be cut: as in Llama and all that follow it."""


class Language(nn.Module):  # type: ignore[misc] # torch has no types where it is not installed
    """A whole language model that answers with its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def layers(self) -> nn.ModuleList:
        """Its layers."""
        return layers_of(self.model)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of all tokens."""
        logits: torch.Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return logits


class Stage(nn.Module):  # type: ignore[misc] # torch has no types where it is not installed
    """Embedding, layers, norm and head of one stage, as far as it has them; places are those of all tokens.

    The whole stream passes through a stage in one piece or, with sequence parallelism, in pieces of tokens.
    """

    def __init__(self, model: nn.Module, chunk: Chunk, job: Job) -> None:
        super().__init__()
        stack: Any = model.model
        self.embed_tokens = stack.embed_tokens if chunk.has_embedding else None
        self.layers = stack.layers
        self.rotary_emb = stack.rotary_emb
        self.norm = stack.norm if chunk.has_head else None
        self.lm_head = model.lm_head if chunk.has_head else None
        self.tokens = job.sequence_tokens
        self.own_tokens = self.tokens // job.tensor if job.splits_sequence else self.tokens
        self.hidden = int(model.config.hidden_size)
        self.words = {pattern.removeprefix(f"{STEM}."): word for pattern, word in _words(model).items()}

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The stream after the layers, or logits."""
        hidden = given if self.embed_tokens is None else self.embed_tokens(given)
        places = torch.arange(self.tokens)[None]
        turned = self.rotary_emb(hidden, places)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=None, position_ids=places, position_embeddings=turned)
        if self.norm is None or self.lm_head is None:
            return hidden
        logits: torch.Tensor = self.lm_head(self.norm(hidden))
        return logits


def build(job: Job, chunk: Chunk, *, is_cut: bool) -> nn.Module:
    """The module of a chunk without data; cut like a stage where parts of the model stand alone."""
    config = configured(job.keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.train()
    _refuse_indivisible(model, job)
    never_packed()
    keep_layers(model, chunk)
    if not is_cut:
        return Language(model)
    if not _can_be_cut(model):
        raise InvalidInput(
            f"{config.model_type} cannot be cut into stages or sequences here; "
            "trace a plan without pp and sp, or a network built like Llama"
        )
    return Stage(model, chunk, job)


def configured(keys: dict[str, Any]) -> Any:
    """The configuration of transformers for the keys of a config.json, with dropout off."""
    given = {
        name: value for name, value in keys.items() if name not in ("model_type", "torch_dtype", "dtype")
    }
    kind = str(keys.get("model_type"))
    if kind not in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise InvalidInput(
            f"transformers builds no causal language model of type '{kind}', so none can be traced"
        )
    config = transformers.AutoConfig.for_model(kind, **given)
    for name in [each for each in vars(config) if each.endswith(("dropout", "pdrop", "dropout_prob"))]:
        setattr(config, name, 0.0)
    config._attn_implementation = "sdpa"
    return config


def _words(model: Any) -> dict[str, str]:
    """How the weights of a model that can be cut are split over tensor ranks."""
    return tensor_plan(model, STEM, (f"{STEM}.embed_tokens",), (f"{STEM}.norm", HEAD))


def _refuse_indivisible(model: Any, job: Job) -> None:
    """Raise for a model that tensor ranks cannot share, or whose experts they would."""
    if job.tensor == 1 or not _can_be_cut(model):
        return
    words = _words(model)
    if Word.EXPERTS in words.values():
        raise InvalidInput(
            f"experts of {model.config.model_type} are not traced with tp; trace a plan with tp=1"
        )
    for reason in tensor_reasons(model, Parts(blocks=(), tensor=words), Plan(tp=job.tensor)):
        raise InvalidInput(f"this plan cannot be traced: {reason}")


def _can_be_cut(model: Any) -> bool:
    return all(hasattr(getattr(model, STEM, None), name) for name in STACK)


def layers_of(model: nn.Module) -> nn.ModuleList:
    """The list of layers: the outermost list that holds most parameters."""
    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList)]
    return max(lists, key=lambda each: sum(p.numel() for p in each.parameters()))


def keep_layers(model: nn.Module, chunk: Chunk) -> None:
    """Leave only the layers of the chunk in the model."""
    layers = layers_of(model)
    end = chunk.first_layer + chunk.layers
    del layers[end:]
    del layers[: chunk.first_layer]
    model.config.num_hidden_layers = chunk.layers
