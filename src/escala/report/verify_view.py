"""A run beside its plan, from their files. Compares nothing itself."""

from escala.measurement.verify import Verified, verify
from escala.report.pairs import write_pair
from escala.report.runfile import read_run
from escala.report.saved import chosen_plan
from escala.report.under import under


def verified(run: str, plan: str | None, calibration: str | None) -> Verified:
    """The run of a file beside a plan: of a file, of the last run by number, or its recommended one."""
    file, row = chosen_plan(plan)
    return verify(read_run(run), under(file.problem, calibration), file.plans[row])


def save_pair(run: str, plan: str | None, path: str) -> None:
    """Write the run and the plan of two files as one."""
    file, row = chosen_plan(plan)
    write_pair(read_run(run), file, row, path)
