"""Packed updates in Flower: a mod at the client, its counterpart at the server, local noise.

The client's mod stands around any ClientApp: it unpacks what comes, lets the app train, and sends the packed
difference. What was not sent, and weights that are sent by steps, stay in `Context.state`.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import log, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.federated.accepted import ARRAYS, read
from escala.federated.codecs import SEPARATOR, Packed, pack, unpack
from escala.federated.digest import digest
from escala.federated.flower import (
    TRAIN,
    ArrayRecord,
    Arrays,
    ConfigRecord,
    Context,
    LocalDpMod,
    Message,
    Mod,
    arrays_of,
    record_of,
)
from escala.federated.packing import Packing, Plain
from escala.federated.references import (
    RESIDUAL,
    Broadcast,
    Held,
    Parcel,
    added,
    by_version,
    difference,
    is_coded,
    masks,
    received,
)
from escala.federated.training import Codec, Privacy, Training

ALL: Final = ("*",)
"""Patterns of the names that are sent: every tensor."""
HEADER: Final = "escala|parcel"
"""An array beside packed weights on their way down: since, version, and the digest of the result."""
HELD: Final = "escala-held"
VERSION: Final = "escala-version"
CONFIG, ROUND = "config", "server-round"
"""Flower's own names."""


def mods_of(training: Training, sent: Sequence[str] = ALL) -> list[Mod]:
    """The mods of a client, outermost first: packing, then local noise, which has to see plain weights."""
    mods: list[Mod] = [packing_mod(training, sent)] if is_packed(training, sent) else []
    privacy = training.privacy
    return mods + ([noise_mod(privacy)] if privacy is not None and privacy.place == "local" else [])


def packing_of(training: Training, sent: Sequence[str] = ALL) -> Packing:
    """How the server packs and unpacks: plainly where nothing is packed."""
    return PackedWeights(training, sent) if is_packed(training, sent) else Plain()


def is_packed(training: Training, sent: Sequence[str] = ALL) -> bool:
    """Whether messages differ from those of plain Flower."""
    return {training.codec_up.kind, training.codec_down.kind} != {"none"} or tuple(sent) != ALL


def goes_by_steps(training: Training, sent: Sequence[str] = ALL) -> bool:
    """Whether clients keep weights and are sent what changed; otherwise they are sent all, as they are."""
    return training.codec_down.kind != "none" or tuple(sent) != ALL


def noise_mod(privacy: Privacy) -> Mod:
    """Flower's LocalDpMod with noise of ratio * clip on every number.

    Flower sizes noise as sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon, so this epsilon is only the one
    that gives the ratio; what a run spends is what the accountant says.
    """
    scale = sqrt(2 * log(1.25 / privacy.delta)) / privacy.noise_ratio
    mod: Mod = LocalDpMod(
        clipping_norm=privacy.clip, sensitivity=privacy.clip, epsilon=scale, delta=privacy.delta
    )
    return mod


def packing_mod(training: Training, sent: Sequence[str] = ALL) -> Mod:
    """Unpacks weights that come and packs the difference that goes; `sent` are patterns of names that go."""

    def packed(message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        if message.metadata.message_type.split(".")[0] != TRAIN:
            return call_next(message, context)
        given = arrays_of(message.content[ARRAYS])
        if goes_by_steps(training, sent):
            given = _taken(training.codec_down, given, context)
            message.content[ARRAYS] = record_of(given)
        round_ = int(message.content[CONFIG][ROUND])
        reply = call_next(message, context)
        if not reply.has_error():
            after = arrays_of(reply.content[ARRAYS])
            reply.content[ARRAYS] = _packed_up(training, sent, given, after, context, round_)
        return reply

    return packed


class PackedWeights:
    """The server's side of packing: what a client is sent, and the weights that its answer means.

    A client that did not answer what it was last sent may hold anything, so it is sent everything.
    """

    def __init__(self, training: Training, sent: Sequence[str] = ALL) -> None:
        self._codec, self._sent = training.codec_up, sent
        self._by_steps = goes_by_steps(training, sent)
        self._broadcast = Broadcast(codec=training.codec_down, seed=training.seed)
        self._plain = Plain()

    def pack(self, weights: Arrays, *, round_: int, client: int) -> tuple[ArrayRecord, Arrays]:
        """What a client is sent; its answer counts from the server's own weights.

        So what a codec left out on the way down is still in the weights of the next round.
        """
        if not self._by_steps:
            return self._plain.pack(weights, round_=round_, client=client)
        if self._broadcast.held is None or self._broadcast.held.version < round_:
            self._broadcast.advance(weights, round_)
        parcel = self._broadcast.parcel(client)
        self._broadcast.forget(client)
        return record_of(parcel.arrays | {HEADER: _header(parcel)}), weights

    def unpack(self, record: ArrayRecord, had: Arrays, *, round_: int, client: int) -> Arrays:
        """The server's weights + what the client sent; what does not fit raises InvalidInput."""
        given = read(record)
        if given is None:
            raise InvalidInput("the reply holds an array that cannot be read")
        weights = _unpacked_up(self._codec, self._sent, had, given)
        self._broadcast.confirm(client, round_)
        return weights

    def kept(self) -> dict[str, Arrays]:
        """What clients hold, and the steps on the way there."""
        broadcast = self._broadcast
        if broadcast.held is None:
            return {}
        steps = {
            f"{version}{SEPARATOR}{key}": array
            for version, step in broadcast.steps.items()
            for key, array in step.items()
        }
        confirmed = np.array(list(broadcast.confirmed.items()), np.int64).reshape(-1, 2)
        versions = np.array([broadcast.held.version, broadcast.oldest])
        return {
            "held": dict(broadcast.held.weights),
            "steps": steps,
            "told": {"versions": versions, "confirmed": confirmed},
        }

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Go on where `kept` was called."""
        if "held" not in groups:
            return
        version, oldest = (int(each) for each in groups["told"]["versions"])
        broadcast = self._broadcast
        broadcast.held, broadcast.oldest = Held(version=version, weights=groups["held"]), oldest
        broadcast.held_digest = digest(groups["held"])
        broadcast.confirmed = {int(client): int(at) for client, at in groups["told"]["confirmed"]}
        broadcast.steps = by_version(groups.get("steps", {}))


def _taken(codec: Codec, given: Arrays, context: Context) -> Arrays:
    """Weights after the steps that came, kept for the next ones."""
    held = received(codec, _held(context), _parcel(given))
    context.state[HELD] = record_of(held.weights)
    context.state[VERSION] = ConfigRecord({"version": held.version})
    return dict(held.weights)


def _packed_up(
    training: Training, sent: Sequence[str], given: Arrays, after: Arrays, context: Context, round_: int
) -> ArrayRecord:
    """The difference to what was given, packed; what is left of it is kept."""
    going = _going(sent, given)
    missing = [name for name in going if name not in after]
    if missing:
        raise InvalidInput(f"the app did not return '{missing[0]}', which the model has")
    changes = {name: difference(after[name], given[name]) for name in going if is_coded(given[name])}
    residuals = arrays_of(context.state[RESIDUAL]) if RESIDUAL in context.state else {}
    packed, kept = pack(training.codec_up, changes, residuals, masks(training.seed, round_, is_up=True))
    if kept:
        context.state[RESIDUAL] = record_of(kept)
    return record_of(packed | {name: after[name] for name in going if name not in changes})


def _unpacked_up(codec: Codec, sent: Sequence[str], had: Arrays, given: Arrays) -> Arrays:
    """Whole weights of an answer: those the server has + the difference, where one was to be sent."""
    going = _going(sent, had)
    counters = {name: given[name] for name in going if name in given and not is_coded(had[name])}
    packed: Packed = {key: array for key, array in given.items() if key not in counters}
    changes = unpack(codec, packed, {name: had[name].shape for name in going if is_coded(had[name])})
    return had | counters | {name: added(had[name], change) for name, change in changes.items()}


def _going(sent: Sequence[str], weights: Mapping[str, NDArray[Any]]) -> list[str]:
    """Names that one of the patterns matches, in the order of the model."""
    going = [name for name in weights if any(fnmatchcase(name, pattern) for pattern in sent)]
    if not going:
        raise InvalidInput(
            f"no tensor of the model is called {', '.join(sent)}; look at the names of its weights"
        )
    return going


def _held(context: Context) -> Held | None:
    if HELD not in context.state or VERSION not in context.state:
        return None
    return Held(version=int(context.state[VERSION]["version"]), weights=arrays_of(context.state[HELD]))


def _header(parcel: Parcel) -> NDArray[np.int64]:
    """Since, version and the 256 bits of the digest as six numbers."""
    return np.concatenate(
        [np.array([parcel.since, parcel.version]), np.frombuffer(bytes.fromhex(parcel.digest), np.int64)]
    )


def _parcel(given: Arrays) -> Parcel:
    if HEADER not in given:
        raise InvalidInput("weights came without a parcel's header; start the server with the client's codec")
    header = given[HEADER]
    return Parcel(
        since=int(header[0]),
        version=int(header[1]),
        digest=header[2:].tobytes().hex(),
        arrays={name: array for name, array in given.items() if name != HEADER},
    )
