"""Traces, with the device and the plan that a person names, as a Profile. Analyses nothing itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from escala.catalog.accelerators import accelerator
from escala.errors import InvalidInput, spoken
from escala.formats.files import read_keys
from escala.measurement.profile.analyse import Planned, profile
from escala.measurement.profile.read import read_traces, trace_files
from escala.measurement.profile.record import PROFILE_SCHEMA, Profile
from escala.model.cluster import Accelerator, Cluster
from escala.report.saved import chosen_plan
from escala.wholefile import write_whole

OnBytes = Callable[[int], None]


def profiled(
    names: Sequence[str], device: Accelerator | None, plan: str | None, on_bytes: OnBytes
) -> Profile:
    """The profile of traces, beside the prediction of a plan where one is named."""
    planned = None if plan is None else planned_of(plan)
    return profile(read_traces(names, on_bytes), device, planned)


def planned_of(name: str) -> Planned:
    """The plan of a file or of the last run, with its question."""
    file, row = chosen_plan(name)
    return Planned(problem=file.problem, plan=file.plans[row])


def device_of(gpu: str | None, cluster: Cluster | None) -> Accelerator | None:
    """The device that a person names, itself or by its cluster; None where nothing is named."""
    if cluster is not None:
        return cluster.accelerator
    return None if gpu is None else accelerator(gpu)


def trace_bytes(names: Sequence[str]) -> int:
    """Bytes of all traces that the names mean, as they lie in their files."""
    return sum(path.stat().st_size for path in trace_files(names) if path.is_file())


def save_profile(given: Profile, path: str) -> None:
    """Write a profile; the file appears whole or not at all, and never over a trace that was read."""
    if any(Path(path).resolve() == Path(each.path).resolve() for each in given.ranks):
        raise InvalidInput(f"{path} is a trace that was read; name another file to write")
    write_whole(Path(path), msgspec.json.format(msgspec.json.encode(given), indent=2) + b"\n")


def read_profile(path: str) -> Profile:
    """A profile that `escala profile --out` wrote."""
    keys = read_keys(Path(path))
    if keys.get("schema") != PROFILE_SCHEMA:
        raise InvalidInput(
            f"{path}: schema is {spoken(keys.get('schema'))}; this escala reads '{PROFILE_SCHEMA}', "
            "which `escala profile TRACES --out profile.json` writes"
        )
    try:
        return msgspec.convert(keys, Profile)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{path} is no whole profile ({error}); profile the traces again") from None
