"""A federation in network namespaces: probe it on fast links, predict it on slow ones, run it, compare.

The server is on one host, four nodes on others: two fast ones, two slow ones. What a message costs beside its
bytes, and what a client's process costs, is measured on the same machine over links that hold nothing up; the
speeds of links are those that the cards are set to, the seconds of a sample those that clients sleep. Nothing
is taken from the runs that are predicted.
"""

import json
import math
import os
import re
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from escala.federated.codecs import tensors_bytes
from escala.federated.credentials import make_certificates
from escala.federated.events import rounds_of
from escala.federated.federation import CREDENTIALS, Federation, make_folder, new_settings, write_connection
from escala.federated.fleet import fleet_of
from escala.federated.population import Population, weights_bytes
from escala.federated.ranges import exactly
from escala.federated.roundrecord import Round
from escala.federated.run import Running, federation_of
from escala.federated.scenario import Learnt, LocalData, Scenario, Server
from escala.federated.serverstate import rounds_of as written
from escala.federated.training import Codec, Training
from escala.federated.transport import FLOWER, IDEAL, Transport
from federated.boards import access, clients, device, scenario
from federated.paced import STAMPS
from netlab.hosts import CARD, Lab, address, inside, passed_bytes, star

TESTS: Final = Path(__file__).parents[1]
LEARNER: Final = f"{Path(__file__).with_name('paced.py')}:learner"
FAST, SLOW = 2, 2
NODES: Final = FAST + SLOW
SERVER_BYTES_PER_S: Final = 1.25e8
SAMPLES: Final = 20
TINY: Final = ((16,), (16,))
LOOK_S: Final = 0.02
STALL_S: Final = 0.1
SIMULATED: Final = 200
EVENTS: Final = {
    "Receiving: train": "receiving",
    "Received successfully": "received",
    "Sending: train": "sending",
    "Sent successfully": "sent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Links, tensors, seconds of a sample, and rules of one run; the first speed is that of fast nodes."""

    name: str
    megabits_per_s: tuple[float, float]
    sample_s: tuple[float, float]
    shapes: tuple[tuple[int, ...], ...]
    rules: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes_per_s(self) -> list[float]:
        """What each card lets through, the server's first."""
        fast, slow = (each * 1e6 / 8 for each in self.megabits_per_s)
        return [SERVER_BYTES_PER_S, *[fast] * FAST, *[slow] * SLOW]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What was measured beside bytes and samples."""

    transport: Transport
    latency_s: float
    start_s: float
    server_s: float


NO_COSTS: Final = Costs(transport=IDEAL, latency_s=0.0, start_s=0.0, server_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run as it was: its rounds, what happened when at each node, and bytes on the wire after round 1.

    `stalled_s` are the seconds that this program waited for a processor, which the machine gave to others:
    where they are many, the seconds of rounds say nothing.
    """

    rounds: tuple[Round, ...]
    stamps: tuple[dict[str, Any], ...]
    down_bytes: int
    up_bytes: int
    stalled_s: float = 0.0

    @property
    def round_s(self) -> list[float]:
        """From the beginning of a round to that of the next; the first round, with its questions, aside."""
        return [after.start_s - before.start_s for before, after in pairwise(self.rounds[1:])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity of a setting as predicted and as measured."""

    setting: str
    what: str
    predicted: float
    measured: float
    stalled_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0 if self.measured else float(self.predicted != 0)


def scenario_of(setting: Setting, costs: Costs) -> Scenario:
    """The setting as a scenario, with what was measured."""
    learnt = Learnt(
        name="noise",
        weights=float(_numbers(setting.shapes)),
        trained_weights=float(_numbers(setting.shapes)),
        forward_flop_per_sample=1.0,
        shapes=setting.shapes,
    )
    kinds = zip(("fast", "slow"), (FAST, SLOW), setting.megabits_per_s, setting.sample_s, strict=True)
    classes = [_class(*kind, costs) for kind in kinds]
    rules = {"clients_per_round": NODES, "least_clients": FAST, **setting.rules}
    fast = access(up_bytes_per_s=exactly(SERVER_BYTES_PER_S), down_bytes_per_s=exactly(SERVER_BYTES_PER_S))
    made = scenario(*classes, training=Training(rounds=exactly(10), **rules))
    return replace(
        made,
        learnt=learnt,
        central=replace(made.central, access=fast),
        server=Server(round_s=costs.server_s),
        transport=costs.transport,
    )


def _class(name: str, count: int, megabits_per_s: float, sample_s: float, costs: Costs) -> Any:
    rate = exactly(megabits_per_s * 1e6 / 8)
    made = device(start_s=exactly(costs.start_s))
    target = replace(made.targets[0], sample_s=exactly(sample_s))
    return clients(
        count,
        name=name,
        device=replace(made, targets=(target,)),
        access=access(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=costs.latency_s),
        data=LocalData(samples=SAMPLES, sample_bytes=256.0),
    )


def _numbers(shapes: Sequence[Sequence[int]]) -> int:
    return sum(math.prod(each) for each in shapes)


def probed(folder: Path, shapes: tuple[tuple[int, ...], ...], rounds: int) -> Costs:
    """Costs from two runs over links that hold nothing up: messages of no size, and of the size asked for."""
    fast = SERVER_BYTES_PER_S * 8 / 1e6
    few, many = (
        Setting(name=name, megabits_per_s=(fast, fast), sample_s=(0.01, 0.01), shapes=each)
        for name, each in (("few", TINY), ("many", shapes))
    )
    seen = {each.name: ran(each, folder / each.name, rounds) for each in (few, many)}
    sizes = [tensors_bytes(Codec(), each.shapes) for each in (few, many)]
    messages = NODES * (rounds - 1)
    lines = {
        way: line(sizes, [getattr(each, f"{way}_bytes") / messages for each in seen.values()])
        for way in ("down", "up")
    }
    spent = times(seen["many"])
    looked_s = statistics.median(spent["look"])
    carried_s = sizes[1] / SERVER_BYTES_PER_S
    both_s = looked_s + statistics.median(spent["down"]) + statistics.median(spent["up"]) - 2 * carried_s
    return Costs(
        transport=replace(
            FLOWER,
            framing=(lines["down"][1] + lines["up"][1]) / 2,
            down_overhead_bytes=lines["down"][0],
            up_overhead_bytes=lines["up"][0],
            node_look_s=FLOWER.node_look_s + looked_s,
        ),
        latency_s=max(both_s, 0.0) / 2,
        start_s=statistics.median(spent["start"]) + min(spent["back"]),
        server_s=min(spent["server"]) + statistics.median(spent["between"]),
    )


def line(sizes: Sequence[float], sent: Sequence[float]) -> tuple[float, float]:
    """Bytes of an empty message, and bytes sent for one of payload."""
    slope = (sent[1] - sent[0]) / (sizes[1] - sizes[0])
    return sent[0] - slope * sizes[0], slope


def times(seen: Seen) -> dict[str, list[float]]:
    """Seconds by phase, one value a client and round, without the first round."""
    found: dict[str, list[float]] = {
        name: [] for name in ("look", "down", "start", "back", "up", "server", "between")
    }
    for client in range(NODES):
        visits = _visits([each for each in seen.stamps if each.get("client") == client])
        for before, now in pairwise(visits):
            pauses_s = now["receiving"] - before["sent"]
            looks = int(pauses_s // FLOWER.node_look_s)
            found["look"].append((pauses_s - looks * FLOWER.node_look_s) / (looks + 1))
            found["down"].append(now["received"] - now["receiving"])
            found["start"].append(now["begun"] - now["receiving"])
            found["back"].append(now["sending"] - now["ended"])
            found["up"].append(now["sent"] - now["sending"])
    scores = [each["ended_s"] for each in seen.stamps if each["what"] == "score"]
    sent = sorted(each["at_s"] for each in seen.stamps if each["what"] == "sent")
    for score in scores[1:]:
        found["server"].append(score - max(each for each in sent if each < score))
    found["between"] = [
        after.start_s - before.start_s - before.round_s for before, after in pairwise(seen.rounds)
    ]
    return found


def _visits(stamps: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """What happened in each piece of work of one client, in the order of time."""
    visits: list[dict[str, float]] = []
    for each in sorted(stamps, key=lambda each: each["at_s"] if "at_s" in each else each["ended_s"]):
        if each["what"] == "receiving":
            visits.append({})
        if visits and each["what"] == "train":
            visits[-1] |= {"begun": each["begun_s"], "ended": each["ended_s"]}
        elif visits:
            visits[-1][each["what"]] = each["at_s"]
    return [each for each in visits if len(each) == len(EVENTS) + 2]


def predicted(asked: Scenario) -> list[Round]:
    """Many rounds of the event engine, the first aside."""
    return list(rounds_of(Population(asked, fleet_of(asked, asked.training.seed)), SIMULATED + 1))[1:]


def compared(setting: Setting, costs: Costs, folder: Path, rounds: int) -> list[Row]:
    """The prediction, made first; then the run."""
    asked = scenario_of(setting, costs)
    said = predicted(asked)
    down, up = (
        weights_bytes(asked.learnt, each) for each in (asked.training.codec_down, asked.training.codec_up)
    )
    seen = ran(setting, folder, rounds)
    later = seen.rounds[1:]
    rows = [
        ("round, mean s", _mean(each.round_s for each in said), _mean(seen.round_s)),
        (
            "round, median s",
            statistics.median(each.round_s for each in said),
            statistics.median(seen.round_s),
        ),
        ("lost a round", _mean(_lost(each) for each in said), _mean(_lost(each) for each in later)),
        (
            "payload down, B",
            down * _mean(len(each.cohort) for each in said),
            _mean(each.down_bytes for each in later),
        ),
        (
            "payload up, B",
            up * _mean(len(each.returned) for each in said),
            _mean(each.up_bytes for each in later),
        ),
        ("wire down, B", _mean(each.down_bytes for each in said), seen.down_bytes / len(later)),
        ("wire up, B", _mean(each.up_bytes for each in said), seen.up_bytes / len(later)),
    ]
    return [
        Row(setting=setting.name, what=what, predicted=one, measured=other, stalled_s=seen.stalled_s)
        for what, one, other in rows
    ]


def _mean(given: Iterable[float]) -> float:
    return statistics.fmean(given)


def _lost(given: Round) -> int:
    return sum(given.lost.values())


def ran(setting: Setting, folder: Path, rounds: int) -> Seen:
    """The setting on Flower, each node on a host of its own."""
    settings = new_settings(scenario_of(setting, NO_COSTS), folder, rounds=rounds, task=LEARNER)
    make_certificates(folder / CREDENTIALS, [address(0)])
    make_folder(settings, NODES)
    stamps = folder / "stamps.jsonl"
    with star(setting.bytes_per_s) as (hosts, switch):
        made = federation_of(settings, NODES)
        port = made.address.rpartition(":")[2]
        federation = replace(made, address=f"{address(0)}:{port}")
        write_connection(federation)
        meter = Meter(federation, hosts, switch)
        paths = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
        with (
            patch.dict(os.environ, {STAMPS: str(stamps), "PYTHONPATH": paths}),
            inside(hosts.holders[0]),
            watched(federation) as logged,
            at_hosts(federation, hosts, meter) as running,
        ):
            ended = running.followed()
            meter.read(len(ended.rounds))
    told = [json.loads(line) for line in stamps.read_text().splitlines()]
    down, up = meter.since_first
    return Seen(
        rounds=ended.rounds,
        stamps=(*told, *(each for each in logged if each["what"] != "stalled")),
        down_bytes=down,
        up_bytes=up,
        stalled_s=sum(each["seconds"] for each in logged if each["what"] == "stalled"),
    )


class Meter:
    """Bytes that nodes' links passed, read when a round is over: nodes look again only seconds later."""

    def __init__(self, federation: Federation, hosts: Lab, switch: int) -> None:
        self._federation, self._hosts, self._switch = federation, hosts, switch
        self._read: dict[int, tuple[int, int]] = {}

    def __call__(self, what: str, left_s: float) -> None:
        """Told by the run several times a second."""
        self.read(len(written(self._federation.folder)))

    def read(self, rounds: int) -> None:
        """Bytes after so many rounds."""
        if rounds not in self._read:
            down = sum(passed_bytes(self._switch, f"port{host}") for host in range(1, NODES + 1))
            up = sum(passed_bytes(self._hosts.holders[host], CARD) for host in range(1, NODES + 1))
            self._read[rounds] = down, up

    @property
    def since_first(self) -> tuple[int, int]:
        """Bytes down and up from the end of round 1 to the end."""
        first, last = self._read[1], self._read[max(self._read)]
        return last[0] - first[0], last[1] - first[1]


class AtHosts(Running):
    """A federation whose nodes run on hosts of their own."""

    def __init__(self, federation: Federation, hosts: Lab, tell: Any) -> None:
        super().__init__(federation, tell)
        self._hosts = hosts

    def _start(self, name: str, command: list[str]) -> None:
        node = re.fullmatch(r"(?:node|worker)-(\d+)", name)
        if node is not None:
            holder = self._hosts.holders[1 + int(node[1])]
            command = ["nsenter", "-t", str(holder), "-n", *command]
        super()._start(name, command)


@contextmanager
def at_hosts(federation: Federation, hosts: Lab, tell: Any) -> Iterator[AtHosts]:
    """Programs of a federation at their hosts while this lasts."""
    running = AtHosts(federation, hosts, tell)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@contextmanager
def watched(federation: Federation) -> Iterator[list[dict[str, Any]]]:
    """When each node's log told of which event, to some hundredths of a second."""
    found: list[dict[str, Any]] = []
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(federation, found, is_over))
    watcher.start()
    try:
        yield found
    finally:
        is_over.set()
        watcher.join()


def _watch(federation: Federation, found: list[dict[str, Any]], is_over: threading.Event) -> None:
    read, began_s = [0] * NODES, time.monotonic()
    while not is_over.wait(LOOK_S):
        late_s, began_s = time.monotonic() - began_s - LOOK_S, time.monotonic()
        if late_s > STALL_S:
            found.append({"what": "stalled", "seconds": late_s})
        for node in range(NODES):
            path = federation.log(f"node-{node}")
            if not path.exists() or path.stat().st_size == read[node]:
                continue
            at_s, content = time.monotonic(), path.read_bytes()
            lines, read[node] = content[read[node] :].decode(errors="replace").splitlines(), len(content)
            for line in lines:
                what = next((name for words, name in EVENTS.items() if words in line), None)
                if what is not None:
                    found.append({"what": what, "client": node, "at_s": at_s})
