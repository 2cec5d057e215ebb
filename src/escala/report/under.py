"""Problems and plan files under a calibration with own runs."""

from dataclasses import replace

from escala.model.own_numbers import with_own
from escala.model.problem import Problem
from escala.report.calibration_file import read_calibration
from escala.report.planfile import PlanFile


def under(problem: Problem, calibration: str | None) -> Problem:
    """The problem under a calibration; without one it stays as it is."""
    return problem if calibration is None else with_own(problem, read_calibration(calibration))


def file_under(file: PlanFile, calibration: str | None) -> PlanFile:
    """The plans under a calibration, in place of the one that they were made with."""
    return replace(file, problem=under(file.problem, calibration))
