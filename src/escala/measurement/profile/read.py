"""Trace files to columns: which files, which rank each is of, and whether they belong together.

Refuses what is no trace of PyTorch's profiler, and what is not one run.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from escala.errors import InvalidInput, one_line
from escala.inputs import refuse_locked
from escala.measurement.profile.columns import Builder, Event, Events, Held
from escala.measurement.profile.pieces import Pieces

ENDINGS: Final = (".json", ".json.gz", ".trace", ".gz")
MOST_TRACES: Final = 4096
FURTHEST_S: Final = 3600.0
NANOSECOND_S: Final = 1e-9
_RANK: Final = re.compile(r"rank[-_.]?(\d+)|trace[-_.]?(\d+)\.json", re.IGNORECASE)
# Keys beside the events that tell who wrote a trace of another tool.
_OTHERS: Final = {
    "viztracer_metadata": "VizTracer",
    "otherData": "another tool (Chrome trace with 'otherData')",
    "stackFrames": "a Chrome or Node trace",
    "systemTraceEvents": "a Chrome trace",
}
OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group as the trace lists it; `name` is the one that messages carry."""

    name: str
    title: str
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """One rank's trace. `began_s` is the clock of its machine at the first event, seconds since 1970.

    `rank` is 0 for a trace alone that does not say it, `device` the name of its accelerator (None on a
    processor), `ranks` the size of the run (None where the trace does not say it).
    """

    path: str
    rank: int
    ranks: int | None
    backend: str | None
    groups: tuple[Group, ...]
    device: str | None
    began_s: float
    events: Events
    held: tuple[Held, ...]


def read_traces(names: Sequence[str], on_bytes: OnBytes = lambda count: None) -> tuple[Trace, ...]:
    """The traces of one run, one a rank, in the order of the ranks; folders stand for the traces in them."""
    paths = trace_files(names)
    traces = [read_trace(path, on_bytes, is_alone=len(paths) == 1) for path in paths]
    _refuse_mixed(traces)
    return tuple(sorted(traces, key=lambda each: each.rank))


def trace_files(names: Sequence[str]) -> list[Path]:
    """The files that the names mean, each once."""
    paths: list[Path] = []
    for name in names:
        if not name.strip():
            raise InvalidInput("a name is empty; name a trace, or a folder of traces")
        path = Path(name)
        paths += _inside(path) if path.is_dir() else [path]
    if len(paths) > MOST_TRACES:
        raise InvalidInput(f"{len(paths)} traces are named; at most {MOST_TRACES} are read together")
    if len({each.resolve() for each in paths}) < len(paths):
        raise InvalidInput("a trace is named twice; name each once")
    return paths


def _inside(folder: Path) -> list[Path]:
    refuse_locked(folder)
    found = [each for each in sorted(folder.rglob("*")) if each.is_file() and each.name.endswith(ENDINGS)]
    if not found:
        raise InvalidInput(f"the folder {folder} holds no .json or .json.gz; name the traces")
    return found


def read_trace(path: Path, on_bytes: OnBytes = lambda count: None, *, is_alone: bool = True) -> Trace:
    """One trace file as columns; one of several has to say its rank."""
    pieces, builder = Pieces(path, on_bytes), Builder()
    for some in pieces.lists(Event):
        builder.add(some)
    keys = pieces.keys
    _refuse_others(path, keys)
    events, first_s = builder.events()
    if not len(events):
        raise InvalidInput(f"{path} holds no operation; profile at least one active step")
    spread = _table(keys.get("distributedInfo"))
    ranks, backend = spread.get("world_size"), spread.get("backend")
    return Trace(
        path=str(path),
        rank=_rank(spread.get("rank"), path, is_alone),
        ranks=ranks if _is_size(ranks) else None,
        backend=backend if isinstance(backend, str) else None,
        groups=_groups(spread.get("pg_config")),
        device=_device(keys.get("deviceProperties")),
        began_s=_number(keys.get("baseTimeNanoseconds")) * NANOSECOND_S + first_s,
        events=events,
        held=builder.held(),
    )


def _refuse_others(path: Path, keys: dict[str, Any]) -> None:
    """Refuse Chrome traces of other tools, by their name where they tell it."""
    beside = keys.get("metadata")
    if isinstance(beside, dict) and "bubble_share" in beside:
        raise InvalidInput(
            f"{path} is a planned timeline that `escala explain` wrote; name a recorded one, "
            "which PyTorch's profiler exports"
        )
    if "schemaVersion" in keys:
        return
    tool = next((tool for key, tool in _OTHERS.items() if key in keys), "another tool")
    raise InvalidInput(
        f"{path} is a Chrome trace of {tool}; only those of PyTorch's profiler are read (export_chrome_trace)"
    )


def _rank(told: object, path: Path, is_alone: bool) -> int:
    """The rank that the trace says, else the one that the name of its file says, else 0 if it is alone."""
    if isinstance(told, int):
        return told
    found = _RANK.search(path.name)
    if found is None and not is_alone:
        raise InvalidInput(f"{path} does not say its rank; put it in the name, such as rank3.json")
    return int(found[1] or found[2]) if found else 0


def _table(given: object) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def _groups(given: object) -> tuple[Group, ...]:
    """The process groups, where they are listed as PyTorch lists them."""
    if not isinstance(given, list):
        return ()
    rows = [each for each in given if isinstance(each, dict) and _is_size(each.get("pg_size"))]
    return tuple(
        Group(name=str(each.get("pg_name")), title=str(each.get("pg_desc")), ranks=each["pg_size"])
        for each in rows
    )


def _is_size(given: object) -> TypeGuard[int]:
    return isinstance(given, int) and given > 0


def _device(given: object) -> str | None:
    if not isinstance(given, list) or not given or not isinstance(given[0], dict):
        return None
    name = given[0].get("name")
    return one_line(name) if isinstance(name, str) else None


def _number(given: object) -> float:
    return float(given) if isinstance(given, int | float) else 0.0


def _refuse_mixed(traces: Sequence[Trace]) -> None:
    """Refuse two traces of a rank, and traces of several runs."""
    seen: dict[int, Trace] = {}
    for each in traces:
        if each.rank in seen:
            raise InvalidInput(
                f"{seen[each.rank].path} and {each.path} are both of rank {each.rank}; name one trace a rank"
            )
        seen[each.rank] = each
    first = traces[0]
    for each in traces[1:]:
        if each.ranks != first.ranks or each.backend != first.backend:
            raise InvalidInput(
                f"{first.path} is of {_run(first)} and {each.path} of {_run(each)}; "
                "name the traces of one run"
            )
        if abs(each.began_s - first.began_s) > FURTHEST_S:
            apart_h = abs(each.began_s - first.began_s) / FURTHEST_S
            raise InvalidInput(
                f"{first.path} and {each.path} were recorded {apart_h:,.0f} h apart; "
                "name the traces of one run"
            )
    if first.ranks is not None and (len(seen) > first.ranks or max(seen) >= first.ranks):
        raise InvalidInput(
            f"there are traces of ranks up to {max(seen)}, and the run has {first.ranks} ranks; "
            "name the traces of one run"
        )


def _run(trace: Trace) -> str:
    size = "a run of unknown size" if trace.ranks is None else f"a run of {trace.ranks} ranks"
    return size if trace.backend is None else f"{size} over {trace.backend}"
