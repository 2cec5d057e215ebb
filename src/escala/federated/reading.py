"""scenario.toml (YAML and JSON hold the same keys) as a Scenario. Knows keys and bounds; never writes.

`escala federate assess --example NAME` prints a file to start from. A quantity is text with its unit; where
low, mid and high are known, a list of three.
"""

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from escala.catalog.places import NODE_POWER_RATIO, WORLD_PUE, operator_pue
from escala.errors import InvalidInput, spoken, unknown
from escala.federated.filetable import Bounds, Table
from escala.federated.ranges import Range
from escala.federated.reading_clients import assumed_of, read_access, read_clients, read_country, read_device
from escala.federated.reading_model import read_model
from escala.federated.reading_training import read_training
from escala.federated.scenario import Central, ClientClass, Gate, Measure, Movement, Rules, Scenario, Server
from escala.federated.transport import TRANSPORTS, Carrier
from escala.formats.files import read_keys
from escala.formats.other_files import refuse_other

SCHEMA: Final = "escala/scenario@1"
KEYS: Final = (
    *("schema", "name", "notes", "model", "training", "clients", "rules", "central", "server", "gate"),
)
RULE_KEYS: Final = (
    *("movement", "region", "deadline", "needs_audit", "needs_exact_repeat", "rounds_per_week"),
    *("enough_samples", "decide_by"),
)
CENTRAL_KEYS: Final = (
    *("device", "devices", "access", "country", "operator", "pue", "node_power_ratio", "epochs"),
    *("price_usd_per_device_hour", "price_source"),
)
GATE_KEYS: Final = (
    *("least_samples", "least_labels", "most_missing_ratio", "most_duplicate_ratio", "most_constant_ratio"),
)
SERVER_KEYS: Final = ("power", "pue", "round_time", "country", "transport")
MOST_CLASSES: Final = 1000
MOST_CLIENTS: Final = 10**9
PUE: Final = Bounds(low=1.0, high=5.0)
# Where a scenario does not say what the central alternative is.
CENTRAL_DEVICE, CENTRAL_ACCESS = "a100", "wan"
CENTRAL_EPOCHS: Final = Range(low=3.0, mid=10.0, high=50.0)


def read_scenario(path: str | Path) -> Scenario:
    """The scenario that a file describes; the first fault is one line with file, table and key."""
    file = Path(path)
    return scenario_from_keys(dict(read_keys(file)), str(file))


def find_scenario(given: str) -> Scenario:
    """The scenario of a file, or the shipped one of that name."""
    if not Path(given).exists() and given in example_names():
        return scenario_from_keys(tomllib.loads(example_text(given)), given)
    return read_scenario(given)


def example_names() -> tuple[str, ...]:
    """Scenarios that escala ships."""
    folder = files("escala.federated") / "examples"
    return tuple(sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if ".toml" in each.name))


def example_text(name: str) -> str:
    """The file of a scenario that escala ships."""
    if name not in example_names():
        raise unknown("example", name, example_names(), f"there are {', '.join(example_names())}")
    return (files("escala.federated") / "examples" / f"{name}.toml").read_text(encoding="utf-8")


def scenario_from_keys(keys: dict[str, object], origin: str = "scenario") -> Scenario:
    """The scenario that the keys of a file describe."""
    refuse_other(keys, origin, SCHEMA)
    top = Table(origin=origin, place="", keys=keys)
    if "schema" in keys and keys["schema"] != SCHEMA:
        raise top.fail(f"schema is {spoken(keys['schema'])}; this escala reads '{SCHEMA}'")
    top.allow(KEYS)
    if "model" not in keys:
        raise top.fail(
            "has no [model]; see `escala federate assess --example phones-keyboard` for a whole file"
        )
    learnt, part = read_model(top.inner("model"))
    clients = _clients(top, learnt.name)
    server = top.inner("server").allow(SERVER_KEYS)
    central, said = _central(top, learnt.name)
    return Scenario(
        name=top.text("name", Path(origin).stem or "scenario"),
        learnt=learnt,
        training=read_training(top.inner("training"), part, sum(each.clients for each in clients)),
        clients=clients,
        rules=_rules(top.inner("rules").allow(RULE_KEYS)),
        central=central,
        server=_server(server),
        server_country=read_country(server),
        transport=TRANSPORTS[server.word("transport", Carrier, Carrier.IDEAL)],
        gate=_gate(top.inner("gate").allow(GATE_KEYS)),
        notes=top.texts("notes"),
        assumed=(*said, *(line for each in clients for line in assumed_of(each))),
    )


def _gate(table: Table) -> Gate:
    counts, shares = Bounds(low=1, high=10**12), Bounds(low=0.0, high=1.0)
    usual = Gate()
    return Gate(
        least_samples=table.count("least_samples", counts, usual.least_samples),
        least_labels=table.count("least_labels", counts, usual.least_labels),
        most_missing_ratio=table.number("most_missing_ratio", shares, usual.most_missing_ratio),
        most_duplicate_ratio=table.number("most_duplicate_ratio", shares, usual.most_duplicate_ratio),
        most_constant_ratio=table.number("most_constant_ratio", shares, usual.most_constant_ratio),
    )


def _clients(top: Table, network: str) -> tuple[ClientClass, ...]:
    found = tuple(read_clients(each, network) for each in top.several("clients", MOST_CLASSES))
    total = sum(each.clients for each in found)
    if total > MOST_CLIENTS:
        raise top.fail(f"[[clients]] are {total:,} in all; at most {MOST_CLIENTS:,} are allowed")
    names = [each.name for each in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise top.fail(f"[[clients]] has the name '{twice[0]}' twice; give each class its own")
    return found


def _rules(table: Table) -> Rules:
    movement = table.word("movement", Movement, Movement.FREE)
    region = tuple(_region(table, each) for each in table.texts("region"))
    if movement is Movement.WITHIN_REGION and not region:
        raise table.fail(
            "movement is 'within-region' without region; list its countries: region = ['DE', 'FR']"
        )
    if movement is not Movement.WITHIN_REGION and region:
        raise table.fail(f"region stands beside movement = '{movement}'; write 'within-region' or remove it")
    return Rules(
        movement=movement,
        region=region,
        deadline_s=table.optional_quantity("deadline", "s", Bounds(low=1.0, high=1e10)),
        needs_audit=table.flag("needs_audit", False),
        needs_exact_repeat=table.flag("needs_exact_repeat", False),
        rounds_per_week=table.optional_number("rounds_per_week", Bounds(low=1e-3, high=1e6)),
        enough_samples=table.optional_number("enough_samples", Bounds(low=1, high=1e15)),
        decide_by=table.words("decide_by", Measure, tuple(Measure)),
    )


def _region(table: Table, name: str) -> str:
    country = read_country(Table(origin=table.origin, place=f"{table.place} region:", keys={"country": name}))
    assert country is not None
    return country


def _central(top: Table, network: str) -> tuple[Central, list[str]]:
    table = top.inner("central").allow(CENTRAL_KEYS)
    said = list(_assumed(table))
    whole = Table(
        origin=table.origin,
        place=table.place or "[central]",
        keys={"device": CENTRAL_DEVICE, "access": CENTRAL_ACCESS, **table.keys},
    )
    device = read_device(whole, network)
    target = device.targets[0]
    usual = NODE_POWER_RATIO if target.name == "gpu" else 1.0
    ratio = whole.number("node_power_ratio", Bounds(low=1.0, high=5.0), usual)
    pue = _pue(whole)
    said.extend(_taken_power(table, ratio, pue))
    if target.power_w.high == 0:
        said.append(f"central: nobody knows the power of {device.name}, so it counts 0 W (device.power)")
    price = whole.optional_number("price_usd_per_device_hour", Bounds(low=0.0, high=1e5))
    return Central(
        name=device.name,
        devices=whole.count("devices", Bounds(low=1, high=10**6), 1),
        flop_per_s=target.flop_per_s,
        sample_s=target.sample_s,
        power_w=Range(
            low=ratio * (target.power_w.low + device.idle_w.low),
            mid=ratio * (target.power_w.mid + device.idle_w.mid),
            high=ratio * (target.power_w.high + device.idle_w.high),
        ),
        pue=pue,
        country=read_country(whole),
        price_usd_per_device_hour=price,
        price_source=whole.text("price_source", "given by the user") if price is not None else None,
        access=read_access(whole),
        epochs=whole.range("epochs", "ratio", CENTRAL_EPOCHS, Bounds(low=1e-3, high=1e6)),
    ), said


def _assumed(table: Table) -> Iterator[str]:
    for key, what in (
        ("device", f"central: one {CENTRAL_DEVICE}"),
        ("access", f"central: reached over {CENTRAL_ACCESS}"),
        ("epochs", "central: 3 to 50 passes over the data"),
    ):
        if not table.has(key):
            yield f"{what}, because [central] does not say"


def _taken_power(table: Table, ratio: float, pue: float) -> Iterator[str]:
    """What the power of the centre is multiplied by where nobody said it."""
    if not table.has("node_power_ratio"):
        yield f"central: a node draws {ratio:g} times what its devices do (node_power_ratio)"
    if not table.has("pue") and not table.has("operator"):
        yield f"central: PUE {pue:g}, the world's average (pue or operator)"


def _pue(table: Table) -> float:
    if table.has("pue") and table.has("operator"):
        raise table.fail("gives pue and operator; keep one of them")
    try:
        known = operator_pue(table.text("operator", WORLD_PUE)).value
    except InvalidInput as error:
        raise table.fail(str(error)) from None
    return table.number("pue", PUE, known)


def _server(table: Table) -> Server:
    usual = Server()
    return Server(
        power_w=table.range("power", "w", usual.power_w),
        pue=table.number("pue", PUE, usual.pue),
        round_s=table.quantity("round_time", "s") if table.has("round_time") else usual.round_s,
    )
