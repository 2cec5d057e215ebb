"""What the catalog knows of a name, as rows for people: value, source, date, condition, disagreement."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from escala.catalog import accelerators, access, clusters, devices, engines, links, networks, places
from escala.catalog.loader import KINDS, Entries, Quantity, find, shown
from escala.catalog.shapes import shape_rows
from escala.errors import InvalidInput, unknown
from escala.model.assumptions import Assumptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row: `value` in the base `unit` (or a word), `text` as the source gives it, `also` what others say.

    `trust` says in words how the value was found: a data sheet, a measurement, recalled, an assumption.
    """

    kind: str
    entry: str
    name: str
    value: float | str | bool
    text: str
    source: str
    unit: str = ""
    publisher: str = ""
    date: str = ""
    condition: str = ""
    trust: str = ""
    low: float | None = None
    high: float | None = None
    also: tuple["Fact", ...] = ()


def kinds() -> tuple[str, ...]:
    """What the catalog holds."""
    return tuple(_KINDS)


def names(kind: str) -> tuple[str, ...]:
    """All names of one kind."""
    if kind not in _KINDS:
        raise unknown("kind", shown(kind), _KINDS, f"the catalog has {', '.join(_KINDS)}")
    return tuple(_KINDS[kind].names())


def lookup(name: str) -> list[Fact]:
    """Every fact of an entry, from any of its names; `kind/name` where one name means several things."""
    kind, _, rest = name.partition("/")
    wanted = [kind] if kind in _KINDS else list(_KINDS)
    asked = rest if kind in _KINDS else name
    for each in wanted:
        found = _KINDS[each].find(asked)
        if found is not None:
            return list(_KINDS[each].facts(found))
    everything = [known for each in wanted for known in names(each)]
    raise unknown("name", shown(asked), everything, f"the catalog has {', '.join(_KINDS)}")


def entries(name: str) -> tuple[str, ...]:
    """Every entry that a name means, as kind/name; several where kinds share a name."""
    found = {kind: each.find(name) for kind, each in _KINDS.items()}
    return tuple(f"{kind}/{entry}" for kind, entry in found.items() if entry is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    names: Callable[[], Sequence[str]]
    find: Callable[[str], str | None]
    facts: Callable[[str], Iterator[Fact]]


def _accelerator(name: str) -> Iterator[Fact]:
    device, entry = accelerators.accelerator(name), accelerators.accelerator_entries()[name]
    node = accelerators.node_of(name)
    yield _word("accelerators", name, "vendor", device.vendor)
    yield _word("accelerators", name, "architecture", device.architecture)
    yield _word("accelerators", name, "released", entry.text("released"))
    yield from _quantities("accelerators", name, accelerators.accelerator_quantities(name))
    yield Fact(
        kind="accelerators",
        entry=name,
        name="node",
        value=node.title,
        text=node.title,
        source=node.source.title,
        publisher=node.source.publisher,
        date=node.source.date,
        condition=_joined(node.levels) + f", then {node.scale_out}",
        trust=KINDS[node.source.read],
    )
    if node.host_memory is not None:
        yield _fact("accelerators", name, "host_memory", node.host_memory)
    if device.notes:
        yield _word("accelerators", name, "notes", device.notes)


def _link(name: str) -> Iterator[Fact]:
    title = links.link_entries()[name].text("title")
    yield _word("links", name, "title", title)
    yield from _quantities("links", name, links.link_quantities(name))


def _cluster(name: str) -> Iterator[Fact]:
    entry = clusters.cluster_entries()[name]
    source = entry.source()
    rows: dict[str, str | int] = {
        "title": entry.text("title"),
        "accelerator": entry.text("accelerator"),
        "devices": entry.count("devices"),
        "devices_per_node": entry.count("devices_per_node"),
        "levels": _joined(accelerators.levels_of(entry)),
        "topology": entry.text("topology", ""),
        "country": entry.text("country", ""),
        "notes": entry.text("notes", ""),
    }
    for key, value in rows.items():
        if value != "":
            yield Fact(
                kind="clusters",
                entry=name,
                name=key,
                value=value,
                text=f"{value:,}" if isinstance(value, int) else value,
                source=source.title,
                publisher=source.publisher,
                date=source.date,
                trust=KINDS[source.read],
            )
    for key in ("host_memory", "storage_read", "storage_write"):
        number = entry.optional(key, "bytes" if key == "host_memory" else "bytes_per_s")
        if number is not None:
            yield _fact("clusters", name, key, number)


def _engine(name: str) -> Iterator[Fact]:
    engine = engines.engine(name)
    for key in ("title", "versions"):
        yield _word("engines", name, key, getattr(engine, key), engine.source)
    for table, settings in engines.engine_settings(name).items():
        for key, setting in settings.items():
            yield _setting("engines", name, f"{table}.{key}", setting)
    if engine.lacks:
        yield _word("engines", name, "lacks", ", ".join(engine.lacks), engine.source)


def _assumption(name: str) -> Iterator[Fact]:
    yield _setting("assumptions", name, name, engines.assumption_settings()[name])


def _network(name: str) -> Iterator[Fact]:
    known = networks.describe(name)
    for row in shape_rows(networks.network(name)):
        counted = "counted from the shape" if row.is_counted else known.trust
        fact = _of_network(known, row.name, row.value, row.text, counted)
        published = (_published(known),) if row.name == "parameters" else ()
        yield replace(fact, condition=row.condition, also=published)
    if known.hub:
        yield _of_network(known, "hub", known.hub, known.hub, known.trust)


def _published(known: networks.NetworkEntry) -> Fact:
    fact = _of_network(known, "parameters", known.parameters, f"{known.parameters:,.0f}", known.trust)
    return replace(fact, condition=known.note or "as published, rounded there")


def _of_network(known: networks.NetworkEntry, name: str, value: float | str, text: str, trust: str) -> Fact:
    return Fact(
        kind="networks",
        entry=known.name,
        name=name,
        value=value,
        text=text,
        source=known.source,
        date=str(known.checked),
        trust=trust,
    )


def _grid(name: str) -> Iterator[Fact]:
    yield _word("grid", name, "country", places.grid_entries()[name].text("name"))
    yield _fact("grid", name, "carbon", places.grid_carbon(name))


def _pue(name: str) -> Iterator[Fact]:
    yield _word("pue", name, "operator", places.pue_entries()[name].text("name"))
    yield _fact("pue", name, "pue", places.operator_pue(name))


def _device(name: str) -> Iterator[Fact]:
    entry = devices.device_entries()[name]
    yield _word("devices", name, "title", entry.text("title"))
    yield from _quantities("devices", name, devices.device_quantities(name))
    for target in devices.device_targets(name):
        numbers = devices.target_quantities(name, target)
        yield from _quantities("devices", name, {f"{target}.{key}": each for key, each in numbers.items()})


def _access(name: str) -> Iterator[Fact]:
    for key in ("title", "energy_kind"):
        yield _word("access", name, key, access.access_entries()[name].text(key))
    yield from _quantities("access", name, access.access_quantities(name))


def _quantities(kind: str, entry: str, numbers: Mapping[str, Quantity]) -> Iterator[Fact]:
    for name, number in numbers.items():
        yield _fact(kind, entry, name, number)


def _fact(kind: str, entry: str, name: str, number: Quantity) -> Fact:
    return Fact(
        kind=kind,
        entry=entry,
        name=name,
        value=number.value,
        text=number.text,
        unit=number.unit,
        source=number.source.title,
        publisher=number.source.publisher,
        date=number.date,
        condition=number.condition,
        trust=KINDS[number.kind],
        low=number.low,
        high=number.high,
        also=tuple(_fact(kind, entry, name, other) for other in number.also),
    )


def _setting(kind: str, entry: str, name: str, setting: engines.Setting) -> Fact:
    return Fact(
        kind=kind,
        entry=entry,
        name=name,
        value=setting.value,
        text=f"{setting.value:g}" if isinstance(setting.value, float) else str(setting.value),
        source=setting.source.title,
        publisher=setting.source.publisher,
        date=setting.source.date,
        condition=setting.condition or setting.formula,
        trust=KINDS[setting.kind],
        low=setting.low,
        high=setting.high,
    )


def _word(kind: str, entry: str, name: str, text: str, source: str = "") -> Fact:
    return Fact(kind=kind, entry=entry, name=name, value=text, text=text, source=source)


def _joined(levels: Sequence[accelerators.Level]) -> str:
    return ", ".join(f"{level.link} joins {level.domain_devices:,}{_taper(level)}" for level in levels)


def _taper(level: accelerators.Level) -> str:
    return "" if level.oversubscription == 1 else f" at {level.oversubscription:g}:1"


def _named(entries: Callable[[], Entries]) -> Callable[[str], str | None]:
    return lambda name: find(name, entries())


def _find_network(name: str) -> str | None:
    try:
        return networks.resolve(name)
    except InvalidInput:
        return None


def _assumption_names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Assumptions))


def _find_assumption(name: str) -> str | None:
    return name if name in _assumption_names() else None


_KINDS: Final = {
    "accelerators": _Kind(
        names=accelerators.accelerators, find=_named(accelerators.accelerator_entries), facts=_accelerator
    ),
    "links": _Kind(names=links.links, find=_named(links.link_entries), facts=_link),
    "clusters": _Kind(names=clusters.clusters, find=_named(clusters.cluster_entries), facts=_cluster),
    "networks": _Kind(names=networks.names, find=_find_network, facts=_network),
    "engines": _Kind(names=engines.engines, find=engines.find_engine, facts=_engine),
    "assumptions": _Kind(names=_assumption_names, find=_find_assumption, facts=_assumption),
    "devices": _Kind(names=devices.devices, find=_named(devices.device_entries), facts=_device),
    "access": _Kind(names=access.access_paths, find=_named(access.access_entries), facts=_access),
    "grid": _Kind(names=places.countries, find=_named(places.grid_entries), facts=_grid),
    "pue": _Kind(names=places.operators, find=_named(places.pue_entries), facts=_pue),
}
