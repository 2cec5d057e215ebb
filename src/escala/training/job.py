"""What is to be trained and how: the plan with its problem, the module, the data, the choices of a run.

Data alone; starts nothing.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.parallel.outer import Outer


class Decay(StrEnum):
    """How the learning rate falls after warm-up."""

    COSINE = "cosine"
    LINEAR = "linear"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Learning rate: its highest value, steps of warm-up, how it falls and to which share."""

    highest: float = 1e-3
    warmup_steps: int = 0
    decay: Decay = Decay.COSINE
    last_share: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The optimizer's own choices: weight decay, momenta of AdamW, the norm that gradients are clipped to."""

    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float | None = 1.0
    compression: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Checkpoints: every so many steps (0: none between), how many are kept, beside the steps or not.

    `at_end` is off for runs that are only timed.
    """

    every_steps: int = 0
    keep: int = 2
    is_async: bool = False
    at_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a person chooses for a run beside its plan.

    `module` names what is trained: None for our decoder of the plan's network, a Hugging Face folder or
    config.json, or package.module:function. `data` is a folder of prepared tokens, one of images,
    "stdlib" (the sources of Python's standard library, byte by byte) or "synthetic". `device` is cuda or
    cpu, None for what there is.
    """

    steps: int
    module: str | None = None
    data: str = "stdlib"
    seed: int = 1
    device: str | None = None
    trackers: tuple[str, ...] = ()
    rate: Rate = field(default_factory=Rate)
    update: Update = field(default_factory=Update)
    saving: Saving = field(default_factory=Saving)
    outer: Outer = field(default_factory=Outer)
    evaluate_every: int = 0
    is_observed: bool = True
    watches_noise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run: a plan, what it was made for, and the choices; its files go into `folder`."""

    problem: Problem
    plan: Plan
    folder: Path
    choices: Choices

    @property
    def global_batch(self) -> int:
        """Samples of a step on all ranks."""
        return self.plan.dp * self.plan.micro_batch * self.plan.micro_batches

    @property
    def tokens_per_sample(self) -> int:
        """Tokens of a sample; 1 for an image."""
        work = self.problem.workload
        return 1 if work.network.is_image else work.sequence_tokens
