"""The factor that keeps fp16 gradients from vanishing: halved when they overflow, doubled after a quiet time.

Torch's GradScaler looks for overflows in plain tensors; here the norm of the whole gradient tells them, the
same on every rank whatever its layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

FIRST: Final = 2.0**16
GROWTH: Final = 2.0
QUIET_STEPS: Final = 2000
"""First factor, growth and quiet time as in torch.amp.GradScaler."""


@dataclass(slots=True, kw_only=True)
class Scaler:
    """The factor of the loss, and for how many steps no gradient has overflowed."""

    factor: float = FIRST
    quiet_steps: int = 0

    def learn(self, norm: float) -> bool:
        """Whether a step with this norm is to be skipped; the factor for the next step follows."""
        if not isfinite(norm):
            self.factor, self.quiet_steps = self.factor / GROWTH, 0
            return True
        self.quiet_steps += 1
        if self.quiet_steps == QUIET_STEPS:
            self.factor, self.quiet_steps = self.factor * GROWTH, 0
        return False

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"factor": self.factor, "quiet_steps": self.quiet_steps}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a checkpoint."""
        self.factor, self.quiet_steps = float(state["factor"]), int(state["quiet_steps"])
