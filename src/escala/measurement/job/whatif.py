"""What each practice buys: every one takes its turn in each round, beside the plain step of that round.

A round goes through all variants there and the next one back, so that a machine that grows slower slows all
alike. Weights stand still (learning rate 0), so that one batch has one loss whatever ran before.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import nan
from typing import Any, Final

import torch

from escala.errors import EscalaError
from escala.measurement.job.batches import samples, tokens
from escala.measurement.job.clock import Setting, timed
from escala.measurement.job.fault import user_code
from escala.measurement.job.job import Training, running, train
from escala.measurement.job.memory import peak_bytes
from escala.measurement.job.practices import PRACTICES, Turn, plain
from escala.measurement.job.record import Tried, WhatIf
from escala.measurement.job.spread import LEAST_SAMPLES, spread

PLAIN: Final = "plain"
NAME: Final = "it"
"""What the message calls a practice that raises; its title stands before it."""
SEED: Final = 7
FASTER, SLOWER, NOISE, UNDECIDED, FAILED = "faster", "slower", "within the noise", "undecided", "failed"


@dataclass(slots=True, kw_only=True)
class Variant:
    """One practice under test: its turns so far, or what went wrong."""

    name: str
    title: str
    turn: Turn | None = None
    why: str = ""
    loss: float | None = None
    first_step_s: float | None = None
    step_s: float = 0.0
    peak_bytes: float | None = None
    means_s: dict[int, float] = field(default_factory=dict)


def what_if(setting: Setting, job: Training, names: Sequence[str], rounds: int, steps: int) -> WhatIf:
    """Turns of `steps` steps of the plain job and of each practice, in so many rounds."""
    with running(job, PLAIN) as runner, user_code(PLAIN):
        reference = runner.batch()
    with still(job):
        variants = [_prepared(setting, job, PLAIN, reference)]
        for name in names:
            if not setting.is_stopped():
                variants.append(_prepared(setting, job, name, reference))
        is_interrupted = _rounds(setting, variants, rounds, steps)
    amount, unit = of_all_ranks(setting, reference)
    first, *others = [_tried(each, variants[0], amount) for each in variants]
    return WhatIf(
        rounds=len(variants[0].means_s),
        steps=steps,
        unit=unit,
        plain=first,
        tried=tuple(others),
        is_interrupted=is_interrupted,
    )


@contextmanager
def still(job: Training) -> Iterator[None]:
    """The learning rate is 0 while this lasts; a step does the same work and changes no weight."""
    groups = [each for each in job.optimizer.param_groups if "lr" in each]
    rates = [each["lr"] for each in groups]
    for each in groups:
        each["lr"] = torch.zeros_like(each["lr"]) if isinstance(each["lr"], torch.Tensor) else 0.0
    try:
        yield
    finally:
        for each, rate in zip(groups, rates, strict=True):
            each["lr"] = rate


def of_all_ranks(setting: Setting, batch: Any) -> tuple[float | None, str]:
    """Tokens, else samples, of one step of all ranks."""
    for count, unit in ((tokens(batch), "tokens"), (samples(batch), "samples")):
        if count is not None:
            return float(sum(setting.ranks.gather(count))), unit
    return None, "samples"


def _prepared(setting: Setting, job: Training, name: str, reference: Any) -> Variant:
    """A variant after its first steps: what they say of its loss and memory, or why it cannot run."""
    title, make = (PLAIN, plain) if name == PLAIN else PRACTICES[name]
    variant = Variant(name=name, title=title)
    setting.progress(f"first steps: {title}", nan)
    try:
        with user_code(NAME):  # torch.compile refuses versions of Python that it does not know
            variant.turn = make(job)
        _first_steps(setting, variant, reference)
    except EscalaError as error:
        variant.why = str(error)
    variant.why = next(filter(None, setting.ranks.gather(variant.why)), "")
    if variant.why and name == PLAIN:
        raise EscalaError(variant.why)
    return variant


def _first_steps(setting: Setting, variant: Variant, reference: Any) -> None:
    assert variant.turn is not None
    with variant.turn() as job, running(job, NAME) as runner:
        torch.manual_seed(SEED)
        began_s = time.perf_counter()
        with user_code(NAME):
            variant.loss = float(train(job, reference))
        variant.first_step_s = time.perf_counter() - began_s
        variant.step_s = timed(runner, 1, setting.device.wait)
        variant.peak_bytes = setting.ranks.most(peak_bytes(runner, job.device))


def _rounds(setting: Setting, variants: Sequence[Variant], rounds: int, steps: int) -> bool:
    """All rounds; True where a person stopped them. An unfinished round counts as far as it went."""
    for number in range(rounds):
        for each in variants if number % 2 == 0 else reversed(variants):
            if each.why or each.turn is None:
                continue
            if setting.is_stopped():
                return True
            left_s = _left_s(variants, rounds, steps)
            setting.progress(f"round {number + 1} of {rounds}: {each.title}", left_s)
            _take_turn(setting, each, number, steps)
    return False


def _left_s(variants: Sequence[Variant], rounds: int, steps: int) -> float:
    """Steps still to run * what a step of each variant took last; one step of a turn is not timed."""
    alive = [each for each in variants if not each.why]
    return sum((rounds - len(each.means_s)) * (steps + 1) * each.step_s for each in alive)


def _take_turn(setting: Setting, variant: Variant, number: int, steps: int) -> None:
    assert variant.turn is not None
    mean_s = 0.0
    try:
        with variant.turn() as job, running(job, NAME) as runner:
            runner.step()
            mean_s = timed(runner, steps, setting.device.wait)
    except EscalaError as error:
        variant.why = str(error)
    variant.why = next(filter(None, setting.ranks.gather(variant.why)), "")
    if not variant.why:
        variant.step_s = variant.means_s[number] = setting.ranks.most(mean_s)


def _tried(variant: Variant, base: Variant, amount: float | None) -> Tried:
    """A variant beside the plain step: only rounds in which both had their turn are compared."""
    if variant.why or not variant.means_s:
        verdict, why = (FAILED, variant.why) if variant.why else (UNDECIDED, "no round was finished")
        return Tried(practice=variant.name, title=variant.title, verdict=verdict, why=why)
    means_s = list(variant.means_s.values())
    gains = [base.means_s[each] / took for each, took in variant.means_s.items() if each in base.means_s]
    gain = spread(gains) if gains and variant is not base else None
    assert variant.loss is not None
    assert base.loss is not None
    return Tried(
        practice=variant.name,
        title=variant.title,
        verdict="" if variant is base else _verdict(gains),
        step_s=spread(means_s),
        gain=gain,
        rate_per_s=None if amount is None else spread([amount / each for each in means_s]),
        peak_bytes=variant.peak_bytes,
        loss=variant.loss,
        loss_change=None if variant is base or not base.loss else variant.loss / base.loss - 1.0,
        first_step_s=variant.first_step_s,
    )


def _verdict(gains: Sequence[float]) -> str:
    if len(gains) < LEAST_SAMPLES:
        return UNDECIDED
    known = spread(gains)
    assert known.low is not None
    assert known.high is not None
    if known.low > 1.0:
        return FASTER
    return SLOWER if known.high < 1.0 else NOISE
