"""Weights on their way down, packed: what server and clients both hold, step by step. Knows no transport.

The server sends what changed since the weights that a client holds, never the weights against its own exact
ones: so both sides add the same numbers and hold the same bits. What a codec leaves out is in the next
change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.federated.codecs import F32, SEPARATOR, Packed, array_bytes, pack, unpack
from escala.federated.digest import digest
from escala.federated.order import SERVER, generator
from escala.federated.training import Codec

Array = NDArray[Any]
WHOLE: Final = -1
"""The version since which a parcel tells when it holds the weights themselves."""
RESIDUAL: Final = "escala-residual"
"""Where a client keeps what it has not sent."""
MASKS: Final = 1 << 41
"""Streams of the server's random numbers that nothing else has: masks up, and down one further."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parcel:
    """What is sent down: steps from one version to another, or whole weights; and a digest of the result."""

    since: int
    version: int
    digest: str
    arrays: Packed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Weights as they are held at one version."""

    version: int
    weights: Mapping[str, Array]


@dataclass(slots=True, kw_only=True)
class Broadcast:
    """The server's side: what clients can hold, the steps between versions, which client confirmed which.

    Steps are kept from version `oldest` on, as long as all together are fewer bytes than the weights.
    """

    codec: Codec
    seed: int
    held: Held | None = None
    held_digest: str = ""
    oldest: int = WHOLE
    steps: dict[int, Packed] = field(default_factory=dict)
    confirmed: dict[int, int] = field(default_factory=dict)

    def advance(self, weights: Mapping[str, Array], version: int) -> Mapping[str, Array]:
        """Take the server's weights as the next version; gives what clients will hold of them."""
        if self.held is None:
            self.held = Held(version=version, weights={name: each.copy() for name, each in weights.items()})
            self.oldest = version
        else:
            assert version > self.held.version
            self.steps[version] = step_between(self.codec, self.held, weights, version, self.seed)
            self.held = moved(self.codec, self.held, self.steps[version], version)
            self._drop_long_ways()
        self.held_digest = digest(self.held.weights)
        return self.held.weights

    def parcel(self, client: int) -> Parcel:
        """What a client has to be sent: the steps that it lacks, or the weights if it is too far behind."""
        assert self.held is not None
        since = self.confirmed.get(client, WHOLE)
        is_whole = since < self.oldest
        return Parcel(
            since=WHOLE if is_whole else since,
            version=self.held.version,
            digest=self.held_digest,
            arrays=dict(self.held.weights) if is_whole else self._steps_after(since),
        )

    def confirm(self, client: int, version: int) -> None:
        """A client answered and said what it holds."""
        self.confirmed[client] = version

    def forget(self, client: int) -> None:
        """Nothing is known of what a client holds: it did not answer, or it lost its weights."""
        self.confirmed.pop(client, None)

    def _steps_after(self, since: int) -> Packed:
        return {
            f"{version}{SEPARATOR}{key}": array
            for version, step in self.steps.items()
            if version > since
            for key, array in step.items()
        }

    def _drop_long_ways(self) -> None:
        assert self.held is not None
        left = _bytes(self.held.weights)
        for version in sorted(self.steps, reverse=True):
            left -= _bytes(self.steps[version])
            if left <= 0:
                self.oldest = max(self.oldest, version)
                del self.steps[version]


def received(codec: Codec, held: Held | None, parcel: Parcel) -> Held:
    """The client's side: what it holds after a parcel. Refused if it lacks a step or the digest differs."""
    if parcel.since == WHOLE:
        now = Held(version=parcel.version, weights=dict(parcel.arrays))
    elif held is None or held.version < parcel.since:
        have = "nothing" if held is None else f"version {held.version}"
        raise InvalidInput(f"steps from version {parcel.since} came, but this client holds {have}; send all")
    else:
        now = held
        for version, step in sorted(by_version(parcel.arrays).items()):
            now = moved(codec, now, step, version) if version > now.version else now
        now = replace(now, version=parcel.version)
    if digest(now.weights) != parcel.digest:
        raise InvalidInput("weights differ from those of the server after a step; send all")
    return now


def step_between(codec: Codec, held: Held, weights: Mapping[str, Array], version: int, seed: int) -> Packed:
    """What changed against the weights held, packed; tensors that did not change are left out."""
    changed = {name: each for name, each in weights.items() if not np.array_equal(each, held.weights[name])}
    coded = {
        name: difference(each, held.weights[name])
        for name, each in changed.items()
        if is_coded(each) and codec.kind != "none"
    }
    packed, _ = pack(_unscaled(codec), coded, {}, masks(seed, version, is_up=False))
    return packed | {name: each.copy() for name, each in changed.items() if name not in coded}


def moved(codec: Codec, held: Held, step: Packed, version: int) -> Held:
    """Weights held + a packed step."""
    plain = {key: array for key, array in step.items() if key in held.weights}
    packed = {key: array for key, array in step.items() if key not in plain}
    names = {key.rpartition(SEPARATOR)[0] for key in packed}
    if not names <= held.weights.keys():
        raise InvalidInput("a step holds tensors that the model does not have")
    shapes = {name: held.weights[name].shape for name in held.weights if name in names}
    changes = unpack(_unscaled(codec), packed, shapes)
    weights = dict(held.weights) | plain
    for name, change in changes.items():
        weights[name] = added(held.weights[name], change)
    return Held(version=version, weights=weights)


def difference(after: Array, before: Array) -> F32:
    """What a tensor changed by, in 32 bits."""
    return (after.astype(np.float64) - before).astype(np.float32)


def added(before: Array, change: F32) -> Array:
    """A tensor after a change, of its own type."""
    return np.asarray(before + change, before.dtype)


def masks(seed: int, round_: int, *, is_up: bool) -> np.random.Generator:
    """The random numbers from which rand-k takes its places in a round, the same for all clients."""
    return generator(seed, SERVER, round_, MASKS + (0 if is_up else 1))


def is_coded(array: Array) -> bool:
    """Numbers with a fraction are packed; counters and flags are sent as they are."""
    return array.dtype.kind == "f"


def _unscaled(codec: Codec) -> Codec:
    """A step's error is in the next step already, so rand-k must not make up for it."""
    return replace(codec, has_feedback=codec.kind != "none")


def by_version(arrays: Packed) -> dict[int, Packed]:
    """Steps of a parcel by the version to which each leads."""
    steps: dict[int, Packed] = {}
    for key, array in arrays.items():
        version, _, name = key.partition(SEPARATOR)
        if not version.isdigit():
            raise InvalidInput(f"'{key}' of a parcel names no version")
        steps.setdefault(int(version), {})[name] = array
    return steps


def _bytes(arrays: Mapping[str, Array]) -> int:
    return sum(array_bytes(each.dtype, each.shape) for each in arrays.values())
