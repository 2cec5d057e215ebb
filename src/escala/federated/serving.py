"""The two halves of a federated app as Flower starts them: the server's rounds and the clients' training.

Loads what the settings in the app name. Rounds and state are written to the server's folder; a server that is
started again goes on behind the last round that is whole.
"""

import fcntl
import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from escala.errors import EscalaError, InvalidInput, one_line
from escala.federated.appsettings import AppSettings, read_settings, settings_of
from escala.federated.clientapp import client_app, wrapped
from escala.federated.clientdata import ClientData, refused
from escala.federated.cutting import clients_in
from escala.federated.digest import digest
from escala.federated.fleet import Fleet, fleet_of, no_history
from escala.federated.flower import Arrays, ClientApp, Grid, ServerApp, Strategy
from escala.federated.learner import Learner, learner_of
from escala.federated.ledger import Ledger
from escala.federated.manifest import Manifest, Notary, bytes_digest, folder_digest, manifest_of
from escala.federated.mods import mods_of, packing_of
from escala.federated.packing import Packing
from escala.federated.rounds import Rounds, Standing
from escala.federated.securerounds import SecureRounds, bounds_of, secure_client
from escala.federated.serverstate import load, save
from escala.federated.strategy import strategy_of
from escala.measurement.job.fault import user_code
from escala.measurement.job.target import imported, named, names_function
from escala.wholefile import write_whole

MESSAGES, PID, LOCK, WEIGHTS = "messages.jsonl", "server.pid", "server.lock", "weights.npz"
REFUSED: Final = "refused: "
LOCK_S: Final = 60.0
"""A server that was killed together with its SuperLink needs some seconds to notice."""


class Refused(EscalaError):
    """What ends a run for good, as it is told to the SuperLink."""


def learner_in(path: Path) -> Learner:
    """The learner of an app's settings; made once in a process, wherever copies of the settings lie."""
    return _learner(path.read_bytes())


@cache
def _learner(content: bytes) -> Learner:
    settings = settings_of(content)
    assert settings.task is not None
    return learner_of(settings.task, settings.scenario)


def client_in(path: Path) -> ClientApp:
    """The client half of the app with these settings."""
    settings = read_settings(path)
    if settings.scenario.training.has_secure_aggregation:
        return wrapped(secure_client(learner_in(path), clients_in(settings.scenario)))
    mods = mods_of(settings.scenario.training)
    return (
        client_app(learner_in(path), mods) if settings.app is None else wrapped(_own_app(settings.app), mods)
    )


def server_in(path: Path) -> ServerApp:
    """The server half of the app with these settings."""
    app = ServerApp()
    app.main()(lambda grid, context: _served(grid, path))
    return app


def _served(grid: Grid, path: Path) -> None:
    """Serve; what would end the same way again is told apart from what another try may get through."""
    try:
        serve(grid, path)
    except EscalaError as error:
        raise Refused(f"{REFUSED}{error}") from error


def serve(grid: Grid, path: Path) -> None:
    """All rounds that are left, each written down with the state after it; then the weights."""
    settings = read_settings(path)
    scenario, folder = settings.scenario, Path(settings.folder)
    fleet = fleet_of(scenario, scenario.training.seed)
    if settings.task is not None:
        fleet = with_samples(fleet, learner_in(path))
    strategy, packing = strategy_of(scenario.training, len(fleet)), packing_of(scenario.training)
    with _alone(folder):
        standing = load(folder, strategy, packing)
        if standing is None:
            standing = Standing(weights=_first(settings, path), history=no_history(len(fleet)))
        manifest = _manifest(settings, path, len(fleet), standing.weights)
        notary = Notary(folder, manifest)
        begun = _Begun(strategy=strategy, packing=packing, fleet=fleet, standing=standing, manifest=manifest)
        rounds = _rounds(grid, settings, path, begun)
        for record in rounds.until(settings.rounds):
            notary.add(save(folder, record, standing, strategy, packing))
        _write_weights(folder / WEIGHTS, standing.weights)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Begun:
    """What a run begins or goes on with."""

    strategy: Strategy
    packing: Packing
    fleet: Fleet
    standing: Standing
    manifest: Manifest


def _rounds(grid: Grid, settings: AppSettings, path: Path, begun: _Begun) -> Rounds | SecureRounds:
    training, fleet = settings.scenario.training, begun.fleet
    if training.has_secure_aggregation:
        learner = learner_in(path)
        return SecureRounds(
            grid,
            begun.strategy,
            training,
            fleet,
            begun.standing,
            bounds=bounds_of(learner, len(fleet)),
            evaluate=learner.score,
        )
    return Rounds(
        grid,
        begun.strategy,
        training,
        fleet,
        begun.standing,
        packing=begun.packing,
        ledger=Ledger(Path(settings.folder) / MESSAGES),
        evaluate=None if settings.task is None else learner_in(path).score,
        kept_out=map(int, begun.manifest.refused),
    )


def _manifest(settings: AppSettings, path: Path, clients: int, first: Arrays) -> Manifest:
    """What this run is: its code, its training, its clients' data where the learner tells them."""
    data = _data(settings, path, clients)
    code = {"app": folder_digest(path.parent)}
    for target in filter(None, (settings.task, settings.app, settings.first)):
        if names_function(target):
            code[target] = bytes_digest(_source(target))
    return manifest_of(
        settings.scenario.name,
        settings.scenario.training,
        clients,
        code=code,
        data=data,
        refused=refused(data, settings.scenario.gate),
        start_digest=digest(first),
    )


def _source(target: str) -> bytes:
    """The file that a target names something in."""
    named(target)
    place = target.rpartition(":")[0]
    file = sys.modules[Path(place).stem if place.endswith(".py") else place].__file__
    return Path(file).read_bytes() if file else b""


def _data(settings: AppSettings, path: Path, clients: int) -> list[ClientData]:
    """Every client's data in counts; none of a learner, or a user's app, that does not tell them."""
    tell = None if settings.task is None else getattr(learner_in(path), "data", None)
    return [] if tell is None else [tell(client) for client in range(clients)]


def with_samples(fleet: Fleet, learner: Learner) -> Fleet:
    """The fleet with as many samples for each client as the task gives it."""
    return replace(fleet, samples=np.array([learner.samples(client) for client in range(len(fleet))]))


def _write_weights(path: Path, weights: Arrays) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **weights)
    write_whole(path, buffer.getvalue())


def _first(settings: AppSettings, path: Path) -> Arrays:
    """The weights before the first round: the learner's, or what the user's function returns."""
    if settings.first is None:
        return learner_in(path).first()
    function = imported(settings.first)
    with user_code(settings.first):
        made: Any = function()
        if hasattr(made, "state_dict"):
            made = {name: each.detach().cpu().numpy() for name, each in made.state_dict().items()}
    if not isinstance(made, dict) or not all(isinstance(each, np.ndarray) for each in made.values()):
        raise InvalidInput(f"{settings.first} returned no arrays by name; return a dict of them, or a module")
    return made


def _own_app(target: str) -> ClientApp:
    """A user's ClientApp, `package.module:app`."""
    app = named(target)
    if not isinstance(app, ClientApp):
        raise InvalidInput(f"{one_line(target)} is {type(app).__name__} and no ClientApp of Flower; name one")
    return app


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one server at a time writes to a folder; one that was killed lets go by itself."""
    with (folder / LOCK).open("w") as lock:
        until_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise InvalidInput(f"another server still writes to {folder}; stop it first") from None
                time.sleep(0.2)
        (folder / PID).write_text(str(os.getpid()))
        yield
