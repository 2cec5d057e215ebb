"""What `escala federate run` shows and writes: the rounds of a run on Flower and how it ended."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput
from escala.federated.appsettings import AppSettings
from escala.federated.cutting import clients_in, cut_to, cuts
from escala.federated.flowerversion import require_flower
from escala.federated.roundrecord import Round
from escala.federated.scenario import Scenario
from escala.progress import Progress

SCHEMA: Final = "escala/federate-run@1"
MOST_NODES: Final = 64
"""So many nodes start here unasked; each is a process of some 140 MB."""


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is over: what it was and is not, where it lies, its rounds, what was started again."""

    schema: str = SCHEMA
    name: str
    folder: str
    learns: str
    nodes: int
    clients: int
    flower_run: int
    submissions: int
    restarted: tuple[str, ...]
    rounds_s: float
    sent_bytes: int
    rounds: tuple[Round, ...]
    notes: tuple[str, ...] = ()


class HostSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Commands to run on one host, in this order."""

    host: str
    commands: tuple[str, ...]


class StartDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What to start where, and what the run is not."""

    schema: str = "escala/federate-start@1"
    folder: str
    hosts: tuple[HostSteps, ...]
    notes: tuple[str, ...] = ()


def settings_for(path: str, folder: Path, given: Mapping[str, Any]) -> tuple[AppSettings, Scenario]:
    """Settings of the run that was asked for, cut to its nodes, and the whole scenario."""
    from escala.federated.federation import new_settings, settings_in
    from escala.federated.reading import find_scenario
    from escala.federated.run import refuse_used

    scenario = find_scenario(path)
    clients = clients_in(scenario)
    nodes = given["nodes"] or (clients if clients <= MOST_NODES else None)
    if nodes is None:
        raise InvalidInput(f"the scenario has {clients:,} clients; say how many nodes start here: --nodes 4")
    refuse_used(folder, given["resume"])
    rounds = given["rounds"] or round(scenario.training.rounds.mid)
    settings = new_settings(
        cut_to(scenario, nodes),
        folder,
        rounds=rounds,
        task=given["task"] or (None if given["app"] else "digits"),
        app=given["app"],
        first=given["first"],
    )
    if given["resume"]:
        settings = _resumed(settings, settings_in(folder))
    return settings, scenario


def run_document(
    path: str, folder: str, given: Mapping[str, Any], tell: Progress, say: Callable[[str], None]
) -> RunDocument:
    """Run on this machine to the end; `tell` hears how far it is, `say` what stays true."""
    require_flower()
    from escala.federated.run import run_here

    settings, whole = settings_for(path, Path(folder), given)
    nodes, notes = clients_in(settings.scenario), _said(whole, settings, say)
    ended = run_here(settings, nodes, tell, say)
    return RunDocument(
        name=settings.scenario.name,
        folder=settings.folder,
        learns=settings.task or settings.app or "",
        nodes=nodes,
        clients=clients_in(whole),
        flower_run=ended.flower_run,
        submissions=ended.submissions,
        restarted=ended.restarted,
        rounds_s=sum(each.round_s for each in ended.rounds),
        sent_bytes=sum(each.up_bytes + each.down_bytes for each in ended.rounds),
        rounds=ended.rounds,
        notes=notes,
    )


def start_document(
    path: str, folder: str, given: Mapping[str, Any], hosts: list[str], say: Callable[[str], None]
) -> StartDocument:
    """Make the folder, and say what to start where; the first host is the server's."""
    require_flower()
    from escala.federated.federation import (
        NODE_PORT,
        PORT,
        Federation,
        instructions,
        make_folder,
        write_connection,
    )

    if len(hosts) < 2:
        raise InvalidInput("--hosts wants the server and a host of nodes at least: --hosts server,site-a")
    settings, whole = settings_for(path, Path(folder), given)
    nodes, notes = clients_in(settings.scenario), _said(whole, settings, say)
    make_folder(settings, nodes, hosts)
    federation = Federation(
        folder=Path(settings.folder),
        settings=settings,
        address=f"{hosts[0]}:{PORT}",
        node_addresses=tuple(f"127.0.0.1:{NODE_PORT + node}" for node in range(nodes)),
    )
    write_connection(federation)
    told = instructions(federation, hosts)
    steps = tuple(HostSteps(host=host, commands=tuple(lines)) for host, lines in told)
    return StartDocument(folder=settings.folder, hosts=steps, notes=notes)


def _said(whole: Scenario, settings: AppSettings, say: Callable[[str], None]) -> tuple[str, ...]:
    """What the run does not do as the whole scenario says, said before it begins."""
    notes = tuple(cuts(whole, settings.scenario))
    for each in notes:
        say(each)
    return notes


def _resumed(asked: AppSettings, before: AppSettings) -> AppSettings:
    """The run of the folder, with as many rounds as are asked for now; all else has to be as it was."""
    again = msgspec.structs.replace(asked, run=before.run, folder=before.folder)
    if msgspec.structs.replace(again, rounds=before.rounds) != before:
        raise InvalidInput(
            f"{before.folder} holds a run of another scenario, task or number of nodes; resume with the same"
            " ones, or name another folder"
        )
    return again
