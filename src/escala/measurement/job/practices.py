"""Efficiency practices on a training job, each put on for a turn and taken off again. Times nothing.

Nothing is copied: a practice wraps the model, the loss or the batches, or sets something that it sets back,
so that the same weights stand behind every variant and no second copy fills the memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

from escala.errors import InvalidInput
from escala.measurement.bench.host import host_facts, usable_cores
from escala.measurement.job.job import Autocast, Training

Turn = Callable[[], AbstractContextManager[Training]]
PIECES: Final = 2
MOST_WORKERS: Final = 4
LEAST_BLOCKS: Final = 2
BLOCKS: Final = (nn.ModuleList, nn.Sequential)


def plain(job: Training) -> Turn:
    """The job as it is."""
    return partial(_only, job)


def amp(job: Training) -> Turn:
    """Products in 16 bit under autocast: bf16, or fp16 with a scaled loss on devices without bf16."""
    kind = job.device.type
    if isinstance(job.loss, Autocast) or all(each.dtype != torch.float32 for each in job.model.parameters()):
        raise InvalidInput("the step computes in 16 bit already")
    has_bf16 = kind != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    loss = Autocast(loss=job.loss, kind=kind, dtype=torch.bfloat16 if has_bf16 else torch.float16)
    return partial(_only, replace(job, loss=loss, scaler=None if has_bf16 else torch.amp.GradScaler(kind)))


def compiled(job: Training) -> Turn:
    """The model through torch.compile; its first step compiles."""
    if hasattr(job.model, "_orig_mod"):
        raise InvalidInput("the model is compiled already")
    return partial(_only, replace(job, model=torch.compile(job.model)))


def checkpointing(job: Training) -> Turn:
    """Repeated blocks keep their inputs alone and run again in backward."""
    if recomputes(job.model):
        raise InvalidInput("the model recomputes already")
    blocks = repeated_blocks(job.model)
    if not blocks:
        raise InvalidInput("the model has no ModuleList or Sequential of at least two blocks of one class")

    @contextmanager
    def turn() -> Iterator[Training]:
        usual = [each.__dict__.get("forward") for each in blocks]
        recompute(blocks)
        try:
            yield job
        finally:
            for each, forward in zip(blocks, usual, strict=True):
                del each.forward
                if forward is not None:
                    each.forward = forward

    return turn


def recompute(blocks: Sequence[nn.Module]) -> None:
    """Let each block keep its inputs alone: an attribute of the object hides the method of its class."""
    for each in blocks:
        each.forward = partial(checkpoint, each.forward, use_reentrant=False)


def recomputes(model: nn.Module) -> bool:
    """Whether layers of transformers are set to do so, or `recompute` was done to blocks."""
    return any(
        getattr(each, "gradient_checkpointing", False) is True
        or getattr(each.__dict__.get("forward"), "func", None) is checkpoint
        for each in model.modules()
    )


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks with most parameters among lists whose blocks are mostly of one class."""
    lists = [each for each in model.modules() if isinstance(each, BLOCKS)]
    found = [_alike(each) for each in lists]
    return max(found, key=_parameters, default=[])


def accumulation(job: Training) -> Turn:
    """The same batch in two micro-batches: half the activations, gradients reduced once."""
    return partial(_only, replace(job, micro_batches=job.micro_batches * PIECES))


def workers(job: Training) -> Turn:
    """Batches made by worker processes ahead of the step."""
    loader = job.batches
    if not isinstance(loader, DataLoader):
        raise InvalidInput(f"the batches are a {type(loader).__name__}, not a DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidInput("every worker would read the whole of an IterableDataset")
    count = max(1, min(MOST_WORKERS, usable_cores(host_facts())))
    if loader.num_workers >= count:
        raise InvalidInput(f"the DataLoader has {loader.num_workers} workers already")
    if loader.batch_sampler is None:
        raise InvalidInput("the DataLoader makes no batches (batch_size=None)")
    ahead = DataLoader(
        loader.dataset,
        batch_sampler=loader.batch_sampler,
        num_workers=count,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )
    return partial(_only, replace(job, batches=ahead))


def fused_optimizer(job: Training) -> Turn:
    """The optimizer step as one kernel for all parameters."""
    groups = job.optimizer.param_groups
    if any("fused" not in each for each in groups):
        raise InvalidInput(f"{type(job.optimizer).__name__} has no fused kernel")
    if all(each["fused"] for each in groups):
        raise InvalidInput("the optimizer is fused already")
    usual = [(each["fused"], each.get("foreach")) for each in groups]

    @contextmanager
    def turn() -> Iterator[Training]:
        job.optimizer.state.clear()  # a fused step keeps its count elsewhere; both begin from nothing
        for each in groups:
            each.update(fused=True, foreach=False)
        try:
            yield job
        finally:
            for each, (fused, foreach) in zip(groups, usual, strict=True):
                each.update(fused=fused, foreach=foreach)
            job.optimizer.state.clear()

    return turn


PRACTICES: Final[dict[str, tuple[str, Callable[[Training], Turn]]]] = {
    "amp": ("16-bit products (autocast)", amp),
    "compile": ("torch.compile", compiled),
    "checkpointing": ("activation checkpointing", checkpointing),
    "accumulation": ("batch in 2 micro-batches", accumulation),
    "workers": ("DataLoader workers", workers),
    "fused-optimizer": ("fused optimizer", fused_optimizer),
}


@contextmanager
def _only(job: Training) -> Iterator[Training]:
    yield job


def _alike(blocks: Any) -> list[nn.Module]:
    """The blocks of the commonest class of a list, where there are two or more."""
    kind, count = Counter(type(each) for each in blocks).most_common(1)[0] if len(blocks) else (None, 0)
    return [each for each in blocks if type(each) is kind] if count >= LEAST_BLOCKS else []


def _parameters(blocks: list[nn.Module]) -> int:
    return sum(each.numel() for block in blocks for each in block.parameters())
