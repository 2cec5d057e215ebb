"""Traces ranks in this process, whose process group and patches are its own: run it, never import it.

`python -m escala.measurement.tracing.child` takes jobs as JSON on stdin and answers each with a line.
"""

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy

from escala.errors import InvalidInput
from escala.measurement.tracing import apply, private
from escala.measurement.tracing.jobs import BACKWARD, BEGIN, FORWARD, STEP, Job, Reply, Traced, Turn
from escala.measurement.tracing.modules import Stage, build
from escala.measurement.tracing.watch import Watch


def main() -> None:
    """Jobs on stdin, one reply a line on stdout; a warning of a library is not for the reader of either."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for job in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Job]):
        sys.stdout.buffer.write(msgspec.json.encode(reply(job)) + b"\n")
        sys.stdout.flush()


def reply(job: Job) -> Reply:
    """The trace of a job, or why this network cannot be traced."""
    try:
        return Reply(traced=trace(job))
    except InvalidInput as error:
        return Reply(refusal=str(error))


def trace(job: Job) -> Traced:
    """One rank through two steps: a first micro-batch makes the optimizer state, the second step counts."""
    with private.fake_ranks(job.ranks):
        mesh = apply.mesh_of(job)
        axes, parts = apply.axes_of(mesh), apply.submeshes(mesh, job)
        is_whole = len(job.chunks) == 1 and job.chunks[0].has_embedding and job.chunks[0].has_head
        modules = [build(job, chunk, is_cut=not is_whole or job.tensor > 1) for chunk in job.chunks]
        with private.fake_tensors():
            return _Rank(job, modules, parts, Watch(axes)).traced()


class _Rank:
    """The modules of one rank with all that a step needs."""

    def __init__(self, job: Job, modules: list[Any], parts: apply.Parts, watch: Watch) -> None:
        self.job, self.watch, self.modules = job, watch, modules
        for place, module in enumerate(modules):
            private.materialize(module)
            if isinstance(module, Stage) and job.tensor > 1:
                apply.split(module, job, parts.tensor)
            apply.recompute(module.layers, job)
            watch.follow(place, module.layers)
            if job.is_sharded:
                apply.shard(module, module.layers, job, parts.data)
        self.root = apply.root_of(modules, job, parts.data)
        self.optimizer = _optimizer(self.root, job, parts)
        self.tokens = torch.empty((job.micro_batch, job.sequence_tokens), dtype=torch.long)
        self.running: dict[tuple[int, int], Any] = {}

    def traced(self) -> Traced:
        """Both steps under the tracker."""
        with (
            private.tracked(self.root, self.optimizer, [self.tokens], self.watch.seen) as tracker,
            self.watch,
            loss_parallel() if self.job.tensor > 1 else nullcontext(),
        ):
            self._step(tuple(turn for turn in self.job.turns if turn.micro_batch == 0), tracker)
            self.watch.forget()
            self._step(self.job.turns, tracker)
        return self.watch.result()

    def _step(self, turns: tuple[Turn, ...], tracker: Any) -> None:
        last = max(turn.micro_batch for turn in turns)
        with (
            self._casting() if self.job.waits else nullcontext()
        ):  # casts of weights live as long as their region
            for turn in turns:
                self.watch.micro_batch = turn.micro_batch
                if turn.kind == FORWARD:
                    self._forward(turn, tracker)
                else:
                    self._backward(turn, tracker, is_last=turn.micro_batch == last)
        self.watch.micro_batch = None
        self.watch.mark(STEP)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _forward(self, turn: Turn, tracker: Any) -> None:
        module = self.modules[turn.chunk]
        private.forget_modules(tracker, module)
        self.watch.mark(FORWARD, turn.chunk, BEGIN)
        with nullcontext() if self.job.waits else self._casting():
            output = module(self._given(turn, module))
            if self.job.chunks[turn.chunk].has_head:
                output = cross_entropy(output.flatten(0, 1).float(), self.tokens.flatten())
        self.running[turn.chunk, turn.micro_batch] = output

    def _given(self, turn: Turn, module: Any) -> torch.Tensor:
        """Tokens, or the stream that the stage before has sent."""
        if self.job.chunks[turn.chunk].has_embedding:
            return self.tokens
        shape = (self.job.micro_batch, module.own_tokens, module.hidden)
        dtype = apply.DTYPES[self.job.precision] if self.job.is_sharded else torch.float32
        # no leaf: hooks of the tracker would never let go of one
        return torch.zeros((), dtype=dtype, requires_grad=True).expand(shape).clone()

    def _casting(self) -> AbstractContextManager[Any]:
        """Autocast, unless FSDP2 casts, or nothing does."""
        dtype = apply.DTYPES[self.job.precision]
        return (
            nullcontext() if self.job.is_sharded or dtype == torch.float32 else torch.autocast("cpu", dtype)
        )

    def _backward(self, turn: Turn, tracker: Any, *, is_last: bool) -> None:
        output = self.running.pop((turn.chunk, turn.micro_batch))
        if self.job.is_sharded and self.job.waits:
            apply.wait_for_last(self.modules[turn.chunk], is_last=is_last)
        self.watch.mark(BACKWARD, turn.chunk, BEGIN)
        self.watch.is_backward = True
        output.backward(None if output.dim() == 0 else torch.empty_like(output))
        self.watch.is_backward = False
        private.keep_as_gradients(tracker, self.modules[turn.chunk])
        if is_last and not self.job.is_sharded:
            apply.reduce_gradients(self.modules[turn.chunk], self.job)


def _optimizer(root: nn.Module, job: Job, parts: apply.Parts) -> torch.optim.Optimizer:
    """Fused AdamW, which makes no temporaries; tensors of tensor ranks and others stand in groups apart."""
    parameters = list(root.parameters())
    if job.shares_optimizer:
        return ZeroRedundancyOptimizer(
            parameters, torch.optim.AdamW, process_group=parts.data.get_group(0), fused=True
        )
    split = [each for each in parameters if isinstance(each, DTensor)]
    whole = [each for each in parameters if not isinstance(each, DTensor)]
    return torch.optim.AdamW([{"params": each} for each in (split, whole) if each], fused=True)


if __name__ == "__main__":
    main()
