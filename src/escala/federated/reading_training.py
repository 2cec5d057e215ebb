"""[training] of a scenario: algorithm, cohort, local work, codecs, selection, privacy."""

from typing import Final

from escala.errors import EscalaError, spoken
from escala.federated.filetable import POSITIVE, Bounds, Table
from escala.federated.refusals import reasons_against
from escala.federated.training import Algorithm, Codec, Part, Privacy, Robust, Selection, Training

KEYS: Final = (
    *("rounds", "clients_per_round", "algorithm", "local_epochs", "batch", "learning_rate"),
    *("server_learning_rate", "proximal", "buffer", "codec_up", "codec_down", "selection", "over_selection"),
    *("round_deadline", "least_clients", "robust", "attackers", "norm_bound", "has_secure_aggregation"),
    *("privacy", "seed"),
)
CODEC_KINDS: Final = ("none", "fp16", "int8", "top-k", "rand-k")
PLACES: Final = ("central", "local")


def read_training(table: Table, part: Part, clients: int) -> Training:
    """How the population learns; `clients` is how many there are."""
    table.allow(KEYS)
    cohort = table.count("clients_per_round", Bounds(low=1, high=clients), min(clients, 10))
    algorithm = table.word("algorithm", Algorithm, Algorithm.FEDAVG)
    if table.has("buffer") != (algorithm is Algorithm.FEDBUFF):
        said = (
            "needs buffer, the updates of a step" if algorithm is Algorithm.FEDBUFF else "does not use buffer"
        )
        raise table.fail(f"algorithm '{algorithm}' {said}; add it with 'fedbuff', remove it otherwise")
    deadline_s = table.optional_quantity("round_deadline", "s", Bounds(low=1e-3, high=1e9))
    training = Training(
        rounds=table.range("rounds", "ratio", bounds=Bounds(low=1, high=1e8)),
        clients_per_round=cohort,
        algorithm=algorithm,
        local_epochs=table.count("local_epochs", Bounds(low=1, high=10_000), 1),
        batch=table.count("batch", Bounds(low=1, high=10**6), 16),
        learning_rate=table.number("learning_rate", POSITIVE, 0.1),
        server_learning_rate=_optional(table, "server_learning_rate"),
        proximal=table.number("proximal", Bounds(low=0.0, high=1e6), 0.0),
        buffer=table.count("buffer", Bounds(low=1, high=cohort)) if table.has("buffer") else None,
        part=part,
        codec_up=_codec(table, "codec_up"),
        codec_down=_codec(table, "codec_down"),
        selection=table.word("selection", Selection, Selection.UNIFORM),
        over_selection=table.number("over_selection", Bounds(low=1.0, high=10.0), 1.0),
        round_deadline_s=deadline_s,
        least_clients=table.count("least_clients", Bounds(low=1, high=cohort), 1),
        robust=table.word("robust", Robust, Robust.MEAN),
        attackers=table.count("attackers", Bounds(low=0, high=cohort), 0),
        norm_bound=_optional(table, "norm_bound"),
        has_secure_aggregation=table.flag("has_secure_aggregation", False),
        privacy=_privacy(table),
        seed=table.count("seed", Bounds(low=0, high=2**31 - 1), 0),
    )
    reasons = reasons_against(training, clients)
    if reasons:
        raise table.fail("; ".join(reasons))
    return training


def _optional(table: Table, key: str) -> float | None:
    return table.number(key, POSITIVE) if table.has(key) else None


def _codec(table: Table, key: str) -> Codec:
    """A kind, or a table with kind, keep_ratio and has_feedback."""
    given = table.keys.get(key, "none")
    own = (
        table.inner(key).allow(("kind", "keep_ratio", "has_feedback"))
        if isinstance(given, dict)
        else Table(origin=table.origin, place=f"{table.place} {key}:", keys={"kind": given})
    )
    kind = own.text("kind")
    if kind not in CODEC_KINDS:
        raise own.fail(f"kind is {spoken(kind, 60)}; allowed are {', '.join(CODEC_KINDS)}")
    needs = kind in ("top-k", "rand-k")
    if needs != own.has("keep_ratio"):
        said = "needs keep_ratio, the share of numbers sent" if needs else "does not use keep_ratio"
        raise own.fail(f"kind '{kind}' {said}; write for example {{ kind = 'top-k', keep_ratio = 0.1 }}")
    keep = own.number("keep_ratio", Bounds(low=1e-6, high=1.0)) if needs else None
    try:
        return Codec(kind=kind, keep_ratio=keep, has_feedback=own.flag("has_feedback", needs))
    except EscalaError as error:
        raise own.fail(str(error)) from None


def _privacy(table: Table) -> Privacy | None:
    if not table.has("privacy"):
        return None
    own = table.inner("privacy").allow(("place", "noise_ratio", "clip", "delta"))
    place = own.text("place")
    if place not in PLACES:
        raise own.fail(f"place is '{place}'; allowed are {', '.join(PLACES)}")
    return Privacy(
        place=place,
        noise_ratio=own.number("noise_ratio", POSITIVE),
        clip=own.number("clip", POSITIVE),
        delta=own.number("delta", Bounds(low=1e-30, high=0.5)),
    )
