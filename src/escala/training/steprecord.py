"""What a run tells of each step. Schema escala/step@1, one JSON line a step."""

from dataclasses import dataclass
from typing import Final

STEP_SCHEMA: Final = "escala/step@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One optimizer step of all ranks, as the first rank saw it.

    `step` counts from 1, `samples` all that were consumed so far. `loss` is the mean over targets of the
    global batch, in nats. `wait_s` is the part of `step_s` before the batch was there. `peak_bytes` is the
    highest of the ranks so far, of the device's allocator; None on processors, whose allocator keeps no
    account. `is_observed` steps ran under the profiler and are slower; `held_out_loss` is there where the
    step was followed by an evaluation, `noise_batch` (samples a step beyond which more buy little) where it
    was asked for and shows, with its 80 % interval `noise_low` to `noise_high` (None: no upper end is known);
    `noise_steps` have told of it in this session, 0 where nothing was watched.
    """

    schema: str
    step: int
    samples: int
    loss: float
    learning_rate: float
    gradient_norm: float | None
    step_s: float
    wait_s: float
    tokens_per_s: float
    mfu: float | None
    peak_bytes: float | None
    elapsed_s: float
    left_s: float
    is_observed: bool
    is_skipped: bool
    held_out_loss: float | None = None
    noise_batch: float | None = None
    noise_low: float | None = None
    noise_high: float | None = None
    noise_steps: int = 0
