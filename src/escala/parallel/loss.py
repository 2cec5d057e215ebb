"""What a module answers to a batch, and its loss: a sum over targets, so that any split gives one total."""

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from escala.parallel.batch import IGNORED, Batch
from escala.parallel.parts import Parts
from escala.parallel.vocabulary import divided_loss_sum


def answer(module: nn.Module, batch: Batch, parts: Parts) -> torch.Tensor:
    """Logits of a batch; language models are told positions and documents where a row has several."""
    given = {"position_ids": batch.positions, "documents": batch.documents} if parts.takes_documents else {}
    found: Any = module(batch.inputs, **{name: each for name, each in given.items() if each is not None})
    logits: torch.Tensor = getattr(found, "logits", found)
    return logits


def loss_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in fp32, added up over targets that are not IGNORED."""
    if isinstance(logits, DTensor):
        return divided_loss_sum(logits, targets)
    flat = logits.flatten(0, -2) if logits.ndim > 2 else logits
    return functional.cross_entropy(flat.float(), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def target_count(targets: torch.Tensor) -> torch.Tensor:
    """How many targets there are to learn from."""
    return (targets != IGNORED).sum()
