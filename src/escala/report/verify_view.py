"""A run beside its plan, from their files. Compares nothing itself."""

from escala.measurement.verify import Verified, verify
from escala.report.runfile import read_run
from escala.report.saved import chosen_plan


def verified(run: str, plan: str | None) -> Verified:
    """The run of a file beside a plan: of a file, of the last run by number, or its recommended one."""
    file, row = chosen_plan(plan)
    return verify(read_run(run), file.problem, file.plans[row])
