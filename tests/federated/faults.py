"""Random faults against `escala federate run`, one after the other on one run, and what became of each.

Each fault strikes a leg of the run: a command that adds rounds. It has to end with 0 and all rounds, or with
another code, and then `--resume` has to bring it there. After every leg the records are held against the
rounds of an undisturbed run, weight for weight; nothing may run on, no half-written file may lie there.
Needs root on Linux: the run lives in network and mount namespaces of its own, on a small disk of its own.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from escala.federated.clientapp import client_app
from escala.federated.fleet import fleet_of, no_history
from escala.federated.flower import hush
from escala.federated.grid import VirtualGrid
from escala.federated.learner import learner_of
from escala.federated.manifest import audit
from escala.federated.reading import read_scenario
from escala.federated.rounds import Rounds, Standing
from escala.federated.serverstate import rounds_of, weights_in
from escala.federated.serving import PID
from escala.federated.strategy import strategy_of
from federated.unruly import ORDERS

NODES: Final = 2
LEG_ROUNDS: Final = 3
PATIENCE_S: Final = 400.0
SETTLED_S: Final = 15.0
DISK: Final = "64m"
LEARNER: Final = f"{Path(__file__).with_name('unruly.py')}:learner"
SCENARIO: Final = """schema = "escala/scenario@1"
name = "faults"

[model]
name = "softmax"
weights = 15
forward_flop_per_sample = "30 FLOP"

[training]
rounds = 3
clients_per_round = 2
least_clients = 2
algorithm = "scaffold"

[[clients]]
name = "boards"
count = 2
device = "raspberry-pi-4"
access = "wifi"
samples = 20
sample_size = "16 B"
"""
DRAFT: Final = re.compile(r"\..*\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a fault: what it was, at which round, exit codes of the leg and of resuming, faults."""

    number: int
    fault: str
    at_round: int
    code: int
    resumed: tuple[int, ...]
    restarted: tuple[str, ...]
    rounds: int
    took_s: float
    wrong: tuple[str, ...]


class Leg:
    """One command that brings a run to so many rounds, and what may happen to it."""

    def __init__(self, place: Path, rounds: int, orders: Path) -> None:
        self.disk, self.orders, self.rounds = place / "disk", orders, rounds
        self.folder = self.disk / "run"
        resumes = ["--resume"] if self.folder.exists() else []
        asked = ["--task", LEARNER, "--nodes", str(NODES), "--rounds", str(rounds), "-o", str(self.folder)]
        command = [sys.executable, "-m", "escala", "federate", "run", str(place / "scenario.toml"), *asked]
        self._said = (place / "leg.log").open("ab+")
        self._said.truncate(0)
        self.process = psutil.Popen(
            [*command, *resumes, "--json"],
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, ORDERS: str(orders)},
            preexec_fn=_interruptible,
        )

    @property
    def done(self) -> int:
        """Rounds that are written down."""
        return len(rounds_of(self.folder)) if self.folder.exists() else 0

    def until(self, is_so: Callable[[], bool], most_s: float = PATIENCE_S) -> bool:
        """Wait for something, or for the end of the command; whether it came."""
        until_s = time.monotonic() + most_s
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > until_s:
                return is_so()
            time.sleep(0.05)
        return True

    def programs(self, words: str) -> list[psutil.Process]:
        """Programs that the command started with these words, without the copies that they make."""
        found = []
        for each in self.process.children():
            with suppress(psutil.NoSuchProcess):
                if words in " ".join(each.cmdline()):
                    found.append(each)
        return found

    def ended(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, what it answered, what it said; a command that hangs is killed and has code -1."""
        try:
            out = self.process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return -1, {}, f"hangs after {PATIENCE_S:.0f} s"
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        self._said.close()
        return self.process.returncode, json.loads(out) if out else {}, said


def _interruptible() -> None:
    """Shells let what they start in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


Strike = Callable[[Leg, np.random.Generator], str]


def kill(words: str) -> Strike:
    """SIGKILL to one of the programs with these words."""

    def strike(leg: Leg, draws: np.random.Generator) -> str:
        found = leg.programs(words)
        if not found:
            return "was not there"
        victim = found[draws.integers(len(found))]
        victim.kill()
        return ""

    return strike


def kill_rounds(leg: Leg, draws: np.random.Generator) -> str:
    """SIGKILL to the process that does the rounds."""
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(int((leg.folder / PID).read_text()), signal.SIGKILL)
        return ""
    return "was not there"


def end_command(what: signal.Signals) -> Strike:
    """A signal to the command itself."""

    def strike(leg: Leg, draws: np.random.Generator) -> str:
        leg.process.send_signal(what)
        return ""

    return strike


def cut_links(leg: Leg, draws: np.random.Generator) -> str:
    """All connections between server, nodes and command are silent for some seconds."""
    silent_s = draws.uniform(2.0, 25.0)
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    leg.until(lambda: False, silent_s)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return f"{silent_s:.0f} s"


def stop_node(leg: Leg, draws: np.random.Generator) -> str:
    """A node is silent for some seconds, its connections stay open."""
    found = leg.programs("flower-supernode")
    silent_s = draws.uniform(2.0, 45.0)
    for victim in found[:1]:
        victim.suspend()
        leg.until(lambda: False, silent_s)
        with suppress(psutil.NoSuchProcess):
            victim.resume()
    return f"{silent_s:.0f} s" if found else "was not there"


def fill_disk(leg: Leg, draws: np.random.Generator) -> str:
    """No byte is left on the disk for some seconds."""
    full_s, filler = draws.uniform(5.0, 25.0), leg.disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    if file.write(bytes(size)) < size:
                        break
    leg.until(lambda: False, full_s)
    filler.unlink()
    return f"{full_s:.0f} s"


def order(what: str) -> Strike:
    """The next client that trains does this."""

    def strike(leg: Leg, draws: np.random.Generator) -> str:
        leg.orders.write_text(what)
        return ""

    return strike


def send_noise(leg: Leg, draws: np.random.Generator) -> str:
    """Random bytes to the server's port, with and without a beginning of HTTP."""
    (found,) = leg.programs("flower-superlink")[:1] or (None,)
    if found is None:
        return "was not there"
    command = found.cmdline()
    port = int(command[command.index("--port") + 1])
    for at in range(20):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 2.0) as line:
            start = b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n" if at % 2 else b""
            line.sendall(start + draws.bytes(1 << 14))
    return ""


def cut_record(leg: Leg, draws: np.random.Generator) -> str:
    """The machine goes down, and of the last record only a part reached the disk."""
    leg.process.kill()
    leg.process.wait()
    until_s = time.monotonic() + 10.0
    while left_over(leg.folder) and time.monotonic() < until_s:
        time.sleep(0.1)
    path = leg.folder / "rounds.jsonl"
    content = path.read_bytes()
    last = content.rfind(b"\n", 0, -1) + 1
    path.write_bytes(content + content[last : last + (len(content) - last) // 2])
    return ""


FAULTS: Final[Mapping[str, Strike]] = {
    "kill the SuperLink": kill("flower-superlink"),
    "kill the rounds": kill_rounds,
    "kill the server's worker": kill("escala.federated.warm server"),
    "kill a node": kill("flower-supernode"),
    "kill a node's worker": kill("escala.federated.warm client"),
    "kill the command": end_command(signal.SIGKILL),
    "Ctrl-C": end_command(signal.SIGINT),
    "cut all links": cut_links,
    "silence a node": stop_node,
    "fill the disk": fill_disk,
    "send NaN": order("not-a-number"),
    "send wrong shapes": order("shape"),
    "send other names": order("names"),
    "send 16 MB": order("huge"),
    "a client raises": order("raise"),
    "a client dies at work": order("die"),
    "noise on the port": send_noise,
    "kill all, half a record": cut_record,
}


def drawn(count: int, draws: np.random.Generator) -> list[str]:
    """So many faults in random order, none a second time before all had their turn."""
    names: list[str] = []
    while len(names) < count:
        names += [str(each) for each in draws.permutation(list(FAULTS))]
    return names[:count]


def struck(names: Sequence[str], draws: np.random.Generator, place: Path) -> Iterator[Outcome]:
    """Faults in a row on one run, each with what became of it."""
    last = 0
    (place / "scenario.toml").write_text(SCENARIO)
    orders = place / "order"
    os.environ[ORDERS] = str(orders)
    expected = undisturbed(place / "scenario.toml", len(names) * LEG_ROUNDS)
    with small_disk(place / "disk"):
        for number, name in enumerate(names, 1):
            last += LEG_ROUNDS
            yield one(number, name, Leg(place, last, orders), place, draws, expected)


def one(
    number: int, name: str, leg: Leg, place: Path, draws: np.random.Generator, expected: list[str | None]
) -> Outcome:
    """One fault at a random moment after the leg's first round; then, where it has to be, resumed."""
    began_s, first = time.monotonic(), leg.rounds - LEG_ROUNDS + 1
    leg.until(lambda: leg.done >= first)
    leg.until(lambda: False, draws.uniform(0.0, 4.0))
    at_round = leg.done
    told = FAULTS[name](leg, draws)
    code, answer, said = leg.ended()
    wrong, resumed = faults_after(leg, code, answer, said, expected), list[int]()
    for _ in range(2):
        if (resumed or [code])[-1] == 0:
            break
        again = Leg(place, leg.rounds, leg.orders)
        more, answer, said = again.ended()
        resumed.append(more)
        wrong += faults_after(again, more, answer, said, expected)
    if (resumed or [code])[-1] != 0:
        wrong.append(f"does not resume: {said[-300:]}")
    leg.orders.unlink(missing_ok=True)
    return Outcome(
        number=number,
        fault=f"{name} {told}".strip(),
        at_round=at_round,
        code=code,
        resumed=tuple(resumed),
        restarted=tuple(answer.get("restarted", ())),
        rounds=leg.done,
        took_s=time.monotonic() - began_s,
        wrong=tuple(wrong),
    )


def faults_after(
    leg: Leg, code: int, answer: Mapping[str, Any], said: str, expected: list[str | None]
) -> list[str]:
    """What may not be after a command has ended, whatever its code."""
    wrong = [f"left running: {each}" for each in settled(leg.folder)]
    records = rounds_of(leg.folder)
    numbers = [each.round for each in records]
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"rounds are {numbers}")
    if [each.weights_digest for each in records] != expected[: len(records)]:
        wrong.append("weights differ from those of an undisturbed run")
    if (code == 0) != (len(records) == leg.rounds and bool(answer)):
        wrong.append(f"code {code} with {len(records)} of {leg.rounds} rounds: {said[-300:]}")
    if code not in (0, 1, 2, 130, -signal.SIGKILL, -signal.SIGINT) or "Traceback" in said:
        wrong.append(f"code {code}: {said[-600:]}")
    if code == 0:
        wrong += [*audit(leg.folder).faults, *drafts(leg.folder)]
        weights_in(leg.folder)
        np.load(leg.folder / "weights.npz", allow_pickle=False)["b"]
    return wrong


def drafts(folder: Path) -> list[str]:
    """Files that were begun and not finished."""
    return [f"half-written: {each.name}" for each in folder.rglob(".*") if DRAFT.fullmatch(each.name)]


def settled(folder: Path) -> list[str]:
    """What still runs some time after the end of a command; programs may take some seconds to end."""
    until_s = time.monotonic() + SETTLED_S
    while (found := left_over(folder)) and time.monotonic() < until_s:
        time.sleep(0.2)
    return found


def left_over(folder: Path) -> list[str]:
    """Processes, but this one, that name the folder in their command or environment."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = " ".join([*each.cmdline(), *each.environ().values()])
            if each.pid != os.getpid() and str(folder) in words:
                found.append(" ".join(each.cmdline())[:120])
    return found


def undisturbed(path: Path, rounds: int) -> list[str | None]:
    """Digests of the weights after each round, over the grid in this process."""
    hush()
    scenario = read_scenario(path)
    fleet = fleet_of(scenario, scenario.training.seed)
    learner = learner_of(LEARNER, scenario)
    standing = Standing(weights=learner.first(), history=no_history(len(fleet)))
    grid = VirtualGrid(client_app(learner), fleet, epochs=scenario.training.local_epochs)
    strategy = strategy_of(scenario.training, len(fleet))
    run = Rounds(grid, strategy, scenario.training, fleet, standing, evaluate=learner.score)
    return [each.weights_digest for each in run.until(rounds)]


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A disk of 64 MB at this place."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def inside(command: list[str]) -> list[str]:
    """The command in network and mount namespaces of its own, with loopback up."""
    return ["unshare", "--net", "--mount", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
