"""A loop that somebody else wrote, prepared for two ranks, beside the same loop in one process."""

import json
from typing import Any

import torch
from forked import on_ranks
from torch.utils.data import DataLoader

import escala
from escala.errors import InvalidInput
from escala.model.plan import Plan, Precision, Recompute
from parallel.models import TOKENS, VOCABULARY, model

SAMPLES, BATCH, RATE = 16, 4, 1e-2
SHARED = {"precision": Precision.FP32}
PLANS = {
    "ddp": Plan(dp=2, **SHARED),
    "zero1": Plan(dp=2, zero=1, shard=2, **SHARED),
    "fsdp": Plan(dp=2, zero=3, reshard=True, shard=2, recompute=Recompute.FULL, **SHARED),
}


def samples() -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    return [torch.randint(VOCABULARY, (TOKENS + 1,), generator=made) for _ in range(SAMPLES)]


def trained(module: Any, optimizer: Any, loader: Any) -> None:
    """The loop: forward, loss, backward, update."""
    for tokens in loader:
        logits = module(tokens[:, :-1]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def parts(module: Any) -> Any:
    """AdamW with two groups of settings, as people write it."""
    norms = [each for name, each in module.named_parameters() if "norm" in name]
    others = [each for name, each in module.named_parameters() if "norm" not in name]
    groups = [{"params": others, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, eps=1e-6)


def weights(module: Any) -> dict[str, torch.Tensor]:
    named = {name.removeprefix("module."): each for name, each in module.named_parameters()}
    return {
        name: (each.full_tensor() if hasattr(each, "full_tensor") else each).detach()
        for name, each in named.items()
    }


def compared(rank: int) -> dict[str, Any]:
    """How far each plan's weights are from those of one process that takes both ranks' samples."""
    alone = model("llama")
    # rank r of 2 takes samples r, r + 2, ...: one process takes 8 at once, in any order
    trained(alone, parts(alone), DataLoader(samples(), batch_size=2 * BATCH))
    expected, found = weights(alone), {}
    for name, plan in PLANS.items():
        module = model("llama")
        given = module, parts(module), DataLoader(samples(), batch_size=BATCH)
        prepared = escala.prepare(plan, *given)
        trained(*prepared)
        held = weights(prepared[0])
        found[name] = max((held[each] - expected[each]).abs().max().item() for each in expected)
    return {"weights": found, "refused": refused()}


def refused() -> dict[str, str]:
    """What cannot run in such a loop, with the words."""
    told = {}
    for name, plan in (("pp", Plan(pp=2)), ("cp", Plan(cp=2)), ("tp", Plan(tp=2)), ("four", Plan(dp=4))):
        module = model("llama")
        try:
            escala.prepare(plan, module, parts(module), DataLoader(samples(), batch_size=BATCH))
        except InvalidInput as error:
            told[name] = str(error)
    return told


if __name__ == "__main__":
    print(json.dumps(on_ranks(2, compared)[0]))
