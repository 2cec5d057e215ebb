"""What a server needs to go on after it was killed, in one file that is whole or not there. Knows no process.

Weights, what the strategy keeps (moments, variates), what is known of clients, the round. The records of
rounds stand beside it, one JSON line each; the file of the state says how many of them count.
"""

import io
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.federated.fleet import History
from escala.federated.flower import Arrays, Strategy
from escala.federated.packing import Packing
from escala.federated.roundrecord import Round
from escala.federated.rounds import Standing
from escala.federated.strategy import kept_by, restore
from escala.wholefile import write_whole

SCHEMA: Final = "escala/federated-state@1"
STATE, ROUNDS = "server.npz", "rounds.jsonl"
FACTS: Final = "facts"
PACKING: Final = "packing."
COLUMNS: Final = ("loss", "round_s", "chosen", "last_round", "charge_ratio")


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a state; its arrays stand beside it."""

    schema: str = SCHEMA
    round: int
    turn: int
    elapsed_s: float
    numbers: dict[str, int | float]


def save(folder: Path, record: Round, standing: Standing, strategy: Strategy, packing: Packing) -> bytes:
    """Write down a round, whose line this gives, and the state after it; else the round is done again."""
    line = msgspec.json.encode(record)
    with (folder / ROUNDS).open("ab") as file:
        file.write(line + b"\n")
    groups, numbers = kept_by(strategy)
    facts = Facts(round=record.round, turn=standing.turn, elapsed_s=standing.elapsed_s, numbers=numbers)
    groups |= {f"{PACKING}{name}": each for name, each in packing.kept().items()}
    groups |= {"weights": standing.weights, "history": _columns(standing.history)}
    write_whole(folder / STATE, _bytes(groups, facts))
    return line


def load(folder: Path, strategy: Strategy, packing: Packing) -> Standing | None:
    """The state of a folder, given back to strategy and packing; nothing where no round was finished.

    Records of rounds that the state does not hold are dropped: those rounds are done again.
    """
    path = folder / STATE
    if not path.exists():
        (folder / ROUNDS).unlink(missing_ok=True)
        return None
    groups, facts = _opened(path)
    weights, columns = groups.pop("weights"), groups.pop("history")
    held = {name: groups.pop(name) for name in list(groups) if name.startswith(PACKING)}
    packing.restore({name.removeprefix(PACKING): each for name, each in held.items()})
    restore(strategy, groups, facts.numbers)
    _cut(folder / ROUNDS, facts.round)
    return Standing(
        weights=weights,
        history=History(**columns),
        round_=facts.round,
        turn=facts.turn,
        elapsed_s=facts.elapsed_s,
    )


def rounds_of(folder: Path) -> list[Round]:
    """The rounds written down so far; a last line that was cut off by a kill does not count."""
    path = folder / ROUNDS
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [msgspec.json.decode(line, type=Round) for line in lines[:-1]]


def weights_in(folder: Path) -> Arrays:
    """The weights of a folder's state."""
    return _opened(folder / STATE)[0]["weights"]


def _columns(history: History) -> Arrays:
    return {name: getattr(history, name) for name in COLUMNS}


def _bytes(groups: dict[str, Arrays], facts: Facts) -> bytes:
    named = {f"{group}/{name}": each for group, arrays in groups.items() for name, each in arrays.items()}
    told: dict[str, NDArray[Any]] = {FACTS: np.frombuffer(msgspec.json.encode(facts), np.uint8)}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **told, **named)
    return buffer.getvalue()


def _opened(path: Path) -> tuple[dict[str, Arrays], Facts]:
    groups: dict[str, Arrays] = {}
    try:
        with np.load(path, allow_pickle=False) as held:
            facts = msgspec.json.decode(held[FACTS].tobytes(), type=Facts)
            for key in held.files:
                group, _, name = key.partition("/")
                if name:
                    groups.setdefault(group, {})[name] = held[key]
    except (OSError, ValueError, KeyError, EOFError, msgspec.DecodeError) as error:
        raise InvalidInput(
            f"{path} is no state of a server ({error}); begin anew in another folder"
        ) from None
    return groups, facts


def _cut(path: Path, last: int) -> None:
    """Drop records of rounds after the last one that the state holds."""
    kept = [each for each in rounds_of(path.parent) if each.round <= last]
    if [each.round for each in kept] != list(range(1, last + 1)):
        raise InvalidInput(f"{path} does not hold rounds 1 to {last} once each; begin anew in another folder")
    write_whole(path, b"".join(msgspec.json.encode(each) + b"\n" for each in kept))
