"""Held-out loss with local steps in terms of DDP's, two replicas, without a network.

    escala data prepare SOURCE -o CORPUS      # or the folder `corpus` of a run of `escala train`
    python benchmarks/local_losses.py CORPUS --steps 720 --seeds 1,2,3 --outer 1:0 0.7:0.9 --rate 8e-3

Both replicas train in turn in this process, in one thread: the network of `escala demo` on its samples, with
its rate or another, its warm-up, AdamW and clipping as in `escala train`, and each outer rate and momentum
that is asked for. Steps are a multiple of the local ones, so that the replicas have just met when the loss is
taken. A loss at 720 steps takes one core some 90 s.
"""

import argparse
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from escala import find_network
from escala.parallel.batch import IGNORED, Batch
from escala.parallel.loss import answer, loss_sum
from escala.parallel.parts import Parts, parts_of
from escala.training.data.index import TRAIN, VALIDATION
from escala.training.data.tensors import batch_of
from escala.training.data.texts import Texts
from escala.training.data.tokens import open_tokens
from escala.training.job import Rate, Update
from escala.training.modules import built
from escala.training.rates import learning_rate

TOKENS, BATCH, REPLICAS, EVALUATED = 128, 16, 2, 8
DEMO, UPDATE = Rate(highest=8e-3, warmup_steps=10), Update()


class Replica:
    """A module with an optimizer of its own."""

    def __init__(self, module: nn.Module, parts: Parts, rate: float) -> None:
        self.module, self.parts = module, parts
        self.optimizer = torch.optim.AdamW(
            module.parameters(), lr=rate, betas=UPDATE.betas, weight_decay=UPDATE.weight_decay
        )

    def loss(self, batch: Batch) -> torch.Tensor:
        """Mean over targets."""
        return (
            loss_sum(answer(self.module, batch, self.parts), batch.targets) / (batch.targets != IGNORED).sum()
        )

    def learn(self, batch: Batch, rate: float) -> None:
        """One inner step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.loss(batch).backward()
        assert UPDATE.clip_norm is not None
        nn.utils.clip_grad_norm_(self.module.parameters(), UPDATE.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()


def batches(texts: Texts, replicas: int, step: int) -> Iterator[Batch]:
    """What each replica learns from in a step: its part of the global batch."""
    own = BATCH // replicas
    for place in range(replicas):
        yield batch_of(texts.batch(step * BATCH + place * own, own))


def trained(
    corpus: Path, seed: int, steps: int, local: int, outer: tuple[float, float] | None, inner: Rate
) -> float:
    """Held-out loss after training with local steps, or as DDP does where there is no outer optimizer."""
    first, _ = built(None, find_network("byte-llama"), seed)
    parts, count = parts_of(first, None), 1 if outer is None else REPLICAS
    replicas = [
        Replica(first, parts, inner.highest),
        *(Replica(deepcopy(first), parts, inner.highest) for _ in range(count - 1)),
    ]
    agreed = deepcopy(first)
    rate, momentum = outer or (1.0, 0.0)
    meeting = torch.optim.SGD(agreed.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0)
    texts = Texts(tokens=open_tokens(corpus, TRAIN), sequence_tokens=TOKENS, seed=seed)
    for step in range(steps):
        for replica, batch in zip(replicas, batches(texts, count, step), strict=True):
            replica.learn(batch, learning_rate(inner, step, steps))
        if outer is not None and (step + 1) % local == 0:
            meet(agreed, meeting, [each.module for each in replicas])
    return held_out(corpus, replicas[0])


def meet(agreed: nn.Module, optimizer: torch.optim.Optimizer, modules: list[nn.Module]) -> None:
    """The outer step, by torch's own SGD: its gradient is the agreed weight - the mean of the replicas'."""
    with torch.no_grad():
        for weight, *own in zip(agreed.parameters(), *(each.parameters() for each in modules), strict=True):
            weight.grad = weight - torch.stack(own).mean(0)
    optimizer.step()
    with torch.no_grad():
        for weight, *own in zip(agreed.parameters(), *(each.parameters() for each in modules), strict=True):
            for each in own:
                each.copy_(weight)


def held_out(corpus: Path, replica: Replica) -> float:
    """Mean loss of the first samples that are held out."""
    texts = Texts(tokens=open_tokens(corpus, VALIDATION), sequence_tokens=TOKENS, seed=None)
    with torch.no_grad():
        losses = [replica.loss(batch_of(texts.batch(place * BATCH, BATCH))) for place in range(EVALUATED)]
    return float(torch.stack(losses).mean())


def main() -> None:
    """A line a seed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("corpus", type=Path)
    options.add_argument("--steps", type=int, default=720)
    options.add_argument("--local", type=int, default=20)
    options.add_argument("--seeds", default="1,2,3")
    options.add_argument("--outer", nargs="+", default=["1:0"], metavar="RATE:MOMENTUM")
    options.add_argument("--rate", type=float, default=DEMO.highest)
    given = options.parse_args()
    inner = replace(DEMO, highest=given.rate)
    torch.set_num_threads(1)
    print(f"| seed | DDP | {' | '.join(given.outer)} |\n|{'---|' * (2 + len(given.outer))}")
    for seed in map(int, given.seeds.split(",")):
        plain = trained(given.corpus, seed, given.steps, given.local, None, inner)
        found = []
        for rate, momentum in (map(float, each.split(":")) for each in given.outer):
            loss = trained(given.corpus, seed, given.steps, given.local, (rate, momentum), inner)
            found.append(f"{loss:.3f}, {loss / plain - 1.0:+.1%}")
        print(f"| {seed} | {plain:.3f} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
