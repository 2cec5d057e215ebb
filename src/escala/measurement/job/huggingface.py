"""A job of a Hugging Face config.json: the model with random weights and random batches. Downloads nothing.

Batches hold as much as the sizes ask for; what is in them does not change how long a dense model takes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from escala.errors import InvalidInput, one_line
from escala.measurement.job.job import Autocast, Training
from escala.measurement.job.practices import recompute, repeated_blocks
from escala.measurement.job.request import SEQUENCE_TOKENS, Sizes
from escala.parallel.models import class_of, config_of

BATCHES: Final = 4
"""Different batches, so that no cache holds all of one; drawn in turn."""
LEARNING_RATE: Final = 1e-4
SEED: Final = 1
# By the end of the class that config.json names: what a batch of it holds.
TEXT, PAIR, IMAGE = "text", "pair", "image"
HEADS: Final = {
    "ForCausalLM": TEXT,
    "LMHeadModel": TEXT,
    "ForMaskedLM": TEXT,
    "ForConditionalGeneration": PAIR,
    "ForImageClassification": IMAGE,
}


def huggingface_job(keys: Mapping[str, object], origin: str, sizes: Sizes, device: torch.device) -> Training:
    """The model that the keys of a config.json describe, with AdamW and its own loss."""
    kind = _kind(keys, origin)
    torch.manual_seed(SEED)
    config = _config(keys, origin)
    with torch.device(device):
        model = class_of(keys, origin)(config)
    if sizes.recomputes:
        recompute(repeated_blocks(model))
    return Training(
        model=model.train(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE),
        batches=[batch_of(kind, config, sizes, device) for _ in range(BATCHES)],
        loss=_precise(sizes.precision, device),
    )


def _kind(keys: Mapping[str, object], origin: str) -> str:
    """What batches of the class that the config names hold."""
    named = keys.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    kind = next((kind for end, kind in HEADS.items() if name.endswith(end)), None)
    if kind is None:
        ends = ", ".join(f"...{end}" for end in HEADS)
        raise InvalidInput(
            f"{origin}: architectures names '{one_line(name) or 'nothing'}'; a step can be made for {ends}"
        )
    return kind


def _config(keys: Mapping[str, object], origin: str) -> Any:
    config = config_of(keys, origin)
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0  # which token begins the output makes no difference to a step
    return config


def batch_of(kind: str, config: Any, sizes: Sizes, device: torch.device) -> dict[str, torch.Tensor]:
    """A random batch of a kind for a configuration."""
    if kind == IMAGE:
        side, colours = getattr(config, "image_size", 224), config.num_channels
        pixels = torch.randn(sizes.micro_batch, colours, side, side, device=device)
        labels = torch.randint(config.num_labels, (sizes.micro_batch,), device=device)
        return {"pixel_values": pixels, "labels": labels}
    text = config.get_text_config()
    context = getattr(text, "max_position_embeddings", None) or SEQUENCE_TOKENS
    tokens = sizes.sequence_tokens or min(SEQUENCE_TOKENS, context)
    ids = torch.randint(text.vocab_size, (sizes.micro_batch, tokens), device=device)
    return {"input_ids": ids, "labels": ids}


def _precise(precision: str, device: torch.device) -> Callable[[Any, Any], Any]:
    """The loss of the model in a number format; tf32 is a setting of the whole process."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision != "bf16":
        return _loss
    return Autocast(loss=_loss, kind=device.type, dtype=torch.bfloat16)


def _loss(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss
