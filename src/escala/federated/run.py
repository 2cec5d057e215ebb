"""A federated run on this machine: server and nodes over TLS, followed to its true end, resumed after a kill.

Success is what the SuperLink says of the run and what the records hold, never that a command returned.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from escala.errors import EscalaError, InvalidInput
from escala.federated.appsettings import AppSettings
from escala.federated.cutting import clients_in
from escala.federated.federation import (
    HOME,
    LOCAL,
    Federation,
    make_folder,
    server_command,
    superlink_command,
    supernode_command,
    worker_command,
    write_connection,
)
from escala.federated.flower import Control, hush, sign_off
from escala.federated.learner import learner_of
from escala.federated.roundrecord import Round
from escala.federated.serverstate import ROUNDS, STATE, rounds_of
from escala.federated.serving import PID, REFUSED
from escala.federated.strategy import strategy_of
from escala.federated.supervisor import Listener, Program, Supervisor, last_words
from escala.progress import Progress

SUPERLINK, SERVER = "superlink", "server"
WORKER: Final = "worker-"
UP_S: Final = 120.0
STEP_S: Final = 0.25
LOOK_S: Final = 1.0
GONE_S: Final = 3.0
SUBMISSIONS: Final = 4
RAISED: Final = "ServerApp failed with exception: "
"""How Flower tells that the server's half of an app raised; a run that was killed has another reason."""
UNSENT: Final = b"Failed to send message"
"""What a SuperNode says when the SuperLink failed to take a reply, which it then throws away."""
FINISHED, COMPLETED = "finished", "completed"
Say = Callable[[str], None]


class RunFailed(EscalaError):
    """The run ended without its last round: says what the SuperLink says of it."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over: all its rounds, how often it was submitted, which programs were started again."""

    rounds: tuple[Round, ...]
    submissions: int
    restarted: tuple[str, ...]
    flower_run: int


def federation_of(settings: AppSettings, nodes: int) -> Federation:
    """A federation on free ports of this machine."""
    ports = _free_ports(nodes + 1)
    return Federation(
        folder=Path(settings.folder),
        settings=settings,
        address=f"{LOCAL}:{ports[0]}",
        node_addresses=tuple(f"{LOCAL}:{port}" for port in ports[1:]),
    )


def refuse_used(folder: Path, is_resumed: bool) -> None:
    """A folder with rounds is gone on with only when that is meant."""
    is_used = (folder / STATE).exists() or (folder / ROUNDS).exists()
    if is_used and not is_resumed:
        raise InvalidInput(f"{folder} holds a run; add --resume to go on with it, or name another folder")


def run_here(settings: AppSettings, nodes: int, tell: Progress, say: Say) -> Ended:
    """All rounds of a run that are left, on this machine; nothing is left running, however this ends.

    `tell` hears how far it is, `say` that it is stopped.
    """
    check(settings)
    make_folder(settings, nodes)
    federation = federation_of(settings, nodes)
    write_connection(federation)
    (federation.folder / HOME / "state.db").unlink(missing_ok=True)
    with started(federation, tell, say) as running:
        return running.followed()


def check(settings: AppSettings) -> None:
    """What would end a run as soon as it began is told before anything is written or started."""
    hush()
    scenario = settings.scenario
    strategy_of(scenario.training, clients_in(scenario))
    if scenario.training.has_secure_aggregation and settings.task is None:
        raise InvalidInput(
            "secure aggregation trains a task, not an app of your own: Flower has it in its older interface"
            " only; name a task, or a function that returns one, or take has_secure_aggregation away"
        )
    if settings.task is not None:
        learner_of(settings.task, scenario).first()


@contextmanager
def started(federation: Federation, tell: Progress, say: Say) -> Iterator["Running"]:
    """Server and nodes of a federation while this lasts; Ctrl-C is answered at once."""
    running = Running(federation, tell)
    try:
        try:
            running.start()
            yield running
        except KeyboardInterrupt:
            say("stopping server and nodes ...")
            raise
        finally:
            running.stop()
    except KeyboardInterrupt:
        say("stopped; the same command goes on with --resume")
        raise


class Running:
    """A federation at work: programs are watched, the run is followed, and submitted again after a kill."""

    def __init__(self, federation: Federation, tell: Progress) -> None:
        self.federation, self._tell = federation, tell
        self.supervisor = Supervisor(self._sign_off)
        self._control: Control | None = None
        self._ids: dict[str, int] = {}
        self._listeners: dict[str, Listener] = {}
        self._restarted: list[str] = []
        self._began_s = time.monotonic()
        self._had = len(rounds_of(federation.folder))
        self._online: int | None = None
        self._last = self._had, self._began_s

    def start(self) -> None:
        """Server first; then nodes, which it has to know."""
        self._start(SUPERLINK, superlink_command(self.federation))
        self._tell("waiting for the SuperLink to answer", float("nan"))
        self._control = self._up()
        self._start(SERVER, server_command(self.federation))
        for node in range(len(self.federation.node_addresses)):
            public = self.federation.key(node).with_suffix(".pub").read_bytes()
            self._ids[_node(node)] = self._control.register(public, f"client-{node}")
            self._listeners[_node(node)] = Listener(self.federation.log(_node(node)))
            self._start(_node(node), supernode_command(self.federation, node))
            self._start(f"{WORKER}{node}", worker_command(self.federation, node))

    def stop(self) -> None:
        """End everything."""
        if self._control is not None:
            self._control.close()
        self.supervisor.stop()

    def followed(self) -> Ended:
        """Submit the run and follow it; killed, it is submitted again and goes on behind its last round."""
        for submission in range(1, SUBMISSIONS + 1):
            run = self._submitted()
            how, details = self._end_of(run)
            if how == COMPLETED:
                return self._ended(submission, run)
            if details.startswith(f"{RAISED}{REFUSED}"):
                raise RunFailed(details.removeprefix(f"{RAISED}{REFUSED}"))
            self._tell(f"the run ended ({how or 'killed'}: {details or 'its server is gone'})", float("nan"))
        raise RunFailed(
            f"the run ended {SUBMISSIONS} times before its last round; --resume goes on, the server's log "
            f"is {self.federation.log(SUPERLINK)}: {last_words(self.federation.log(SUPERLINK))}"
        )

    def watch(self) -> None:
        """Start again what ended, and nodes that threw a reply away: their work is then sent again."""
        for name, listener in self._listeners.items():
            if listener.hears(UNSENT):
                self.supervisor.kill(name)
        for name in self.supervisor.check():
            self._restarted.append(name)
            self._tell(f"{name} ended and was started again", float("nan"))

    def _sign_off(self, name: str) -> None:
        """A node that ended is signed off, so that it may come back at once; without its worker it ends too.

        Its work would be missed only after half a minute; a node that begins anew is sent it again.
        """
        if name.startswith(WORKER):
            self.supervisor.kill(_node(int(name.removeprefix(WORKER))))
        if name in self._ids:
            key = self.federation.key(int(name.rpartition("-")[2])).read_bytes()
            sign_off(self.federation.address, self.federation.authority, key, self._ids[name])

    def _ended(self, submissions: int, run: int) -> Ended:
        """The records of a run that its SuperLink calls completed; they have to be all there."""
        rounds = rounds_of(self.federation.folder)
        wanted = list(range(1, self.federation.settings.rounds + 1))
        if [each.round for each in rounds] != wanted:
            raise RunFailed(
                f"the SuperLink calls the run completed, but {self.federation.folder / ROUNDS} does not hold "
                f"rounds 1 to {len(wanted)} once each"
            )
        return Ended(
            rounds=tuple(rounds),
            submissions=submissions,
            restarted=tuple(self._restarted),
            flower_run=run,
        )

    def _start(self, name: str, command: list[str]) -> None:
        self.supervisor.start(
            Program(
                name=name,
                command=command,
                log=self.federation.log(name),
                environment=self.federation.environment,
            )
        )

    def _up(self) -> Control:
        """The SuperLink, once it answers."""
        control, until_s = (
            Control(self.federation.address, self.federation.authority),
            time.monotonic() + UP_S,
        )
        while not control.is_up():
            self.watch()
            if time.monotonic() > until_s:
                log = self.federation.log(SUPERLINK)
                raise RunFailed(f"the SuperLink does not answer after {UP_S:.0f} s; {log}: {last_words(log)}")
            time.sleep(STEP_S)
        return control

    def _submitted(self) -> int:
        assert self._control is not None
        self._control.close()
        self._control = self._up()
        (self.federation.folder / PID).unlink(missing_ok=True)
        return self._control.submit(self.federation.app)

    def _end_of(self, run: int) -> tuple[str, str]:
        """How a run ended and why; a run whose server process is gone is stopped."""
        assert self._control is not None
        looked_s, gone_s = 0.0, None
        while True:
            self.watch()
            self._say()
            now_s = time.monotonic()
            if now_s - looked_s >= LOOK_S:
                looked_s = now_s
                status, self._online = self._control.status(run), self._control.online()
                if status is not None and status[0] == FINISHED:
                    return status[1], status[2]
                gone_s = (gone_s or now_s) if self._is_server_gone() else None
            if gone_s is not None and now_s - gone_s > GONE_S:
                self._control.stop(run)
                return "", ""
            time.sleep(STEP_S)

    def _is_server_gone(self) -> bool:
        """Whether the process that wrote its number down does not run any more."""
        path = self.federation.folder / PID
        number = path.read_text() if path.exists() else ""
        return number.isdecimal() and not psutil.pid_exists(int(number))

    def _say(self) -> None:
        """Round and seconds left, at the pace of the rounds so far; before the first, what is waited for."""
        rounds = rounds_of(self.federation.folder)
        done, wanted = len(rounds), self.federation.settings.rounds
        score = rounds[-1].metrics.get("accuracy") if rounds else None
        told = f", accuracy {score:.4f}" if score is not None else ""
        if done > self._had:
            self._tell(f"round {done} of {wanted} done{told}", self._left_s(done, wanted))
        elif self._online is not None:
            nodes = len(self.federation.node_addresses)
            if self._online < nodes:
                self._began_s = time.monotonic()  # no round goes on yet
            told = f"{self._online} of {nodes} nodes online"
            self._tell(f"waiting for round {done + 1} of {wanted}: {told}", float("nan"))

    def _left_s(self, done: int, wanted: int) -> float:
        """Seconds left at the pace of the rounds until the last one ended, less those since."""
        now_s = time.monotonic()
        if done != self._last[0]:
            self._last = done, now_s
        ended_s = self._last[1]
        return (ended_s - self._began_s) / (done - self._had) * (wanted - done) - (now_s - ended_s)


def _node(node: int) -> str:
    return f"node-{node}"


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((LOCAL, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
