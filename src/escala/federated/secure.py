"""Secure aggregation by Flower's SecAgg+ workflow: the server learns the sum of updates, not the single ones.

What it does not do: Flower 1.42 expands every mask from 32 bits (`pseudo_rand_gen`), so whoever records the
masked updates can search the masks. It keeps an honest server from looking, not a determined one. Counts of
samples travel openly, and a server that invents clients is not stopped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from escala.errors import EscalaError, InvalidInput
from escala.federated.codecs import F32, SEPARATOR, pack, unpack
from escala.federated.flower import (
    ClientApp,
    Context,
    Grid,
    Message,
    RecordDict,
    arrays_of,
    record_of,
    total_bytes,
)
from escala.federated.flower import secure_parts as flower
from escala.federated.references import RESIDUAL, difference, masks
from escala.federated.training import Training

SHARES: Final = 1.0
"""Each client gives a share of its secrets to all others of the cohort (SecAgg; below 1 it is SecAgg+)."""
THRESHOLD: Final = 2 / 3
"""The share of the cohort whose answers reveal the sum; as many may not fail. An assumption, Bonawitz et al.
2017 name two thirds for a server that does not follow the protocol."""
STEPS, MODULUS = 1 << 22, 1 << 32
"""Numbers become whole steps below STEPS and are added modulo MODULUS; the defaults of Flower."""
MOST_CLIENTS: Final = MODULUS // STEPS
MOST_STAGE_S: Final = 3600.0
"""A stage without a deadline waits so long, as Flower's strategies do for a round."""
ROUND: Final = "round"
Weights = dict[str, F32]
Train = Callable[[Weights, int, int], tuple[Weights, int]]
"""What a client does with weights, its number and the round: new weights and its count of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What updates are taken to fit in: numbers up to `most`, counts of samples up to `samples`.

    Numbers beyond are refused at the client: Flower would cut them without a word.
    """

    most: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summed:
    """The mean change of a round, weighted by samples; who returned; bytes of all messages."""

    change: Weights
    returned: tuple[int, ...]
    down_bytes: int
    up_bytes: int


def secure_app(train: Train, training: Training, bounds: Range) -> ClientApp:
    """A ClientApp that trains as is told and masks its update; its number is its `partition-id`."""
    numpy_client = flower().numpy_client

    class Masked(numpy_client):  # type: ignore[misc, valid-type] # Flower's class is found when it is needed
        """Trains once and gives the packed difference as plain arrays, which Flower's mod masks."""

        def __init__(self, context: Context) -> None:
            self._client, self._state = int(context.node_config["partition-id"]), context.state

        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
            """Flower's own name of training."""
            names, round_ = str(config["names"]).split("\n"), int(config[ROUND])
            given = dict(zip(names, parameters, strict=True))
            after, samples = train(given, self._client, round_)
            changes = {name: difference(after[name], given[name]) for name in names}
            left = arrays_of(self._state[RESIDUAL]) if RESIDUAL in self._state else {}
            packed, left = pack(training.codec_up, changes, left, masks(training.seed, round_, is_up=True))
            if left:
                self._state[RESIDUAL] = record_of(left)
            sent = [array.astype(np.float64) for key, array in packed.items() if _is_value(key)]
            _refuse_beyond(sent, samples, bounds)
            return sent, samples, {}

    def client_of(context: Context) -> Any:
        return Masked(context).to_client()

    return ClientApp(client_of, mods=[flower().mod])


def secure_mean(
    grid: Grid, nodes: Mapping[int, int], weights: Weights, round_: int, training: Training, bounds: Range
) -> Summed:
    """One round: `nodes` are those of the cohort by client number. Raises where too few answered."""
    if not 3 <= len(nodes) <= MOST_CLIENTS:
        raise InvalidInput(
            f"secure aggregation of {len(nodes)} clients: Flower's sum holds from 3 to {MOST_CLIENTS} a round"
        )
    parts, counted, sums = flower(), _Counted(grid), _Sums(nodes, weights, round_)
    state = RecordDict({"parameters": parts.record_of(list(weights.values()))})
    state["config"] = parts.config_of({"current_round": round_})
    context = parts.context(Context(0, 0, {}, state, {}), strategy=sums, client_manager=sums)
    _workflow()(
        SHARES,
        THRESHOLD,
        max_weight=float(bounds.samples),
        clipping_range=bounds.most,
        quantization_range=STEPS,
        modulus_range=MODULUS,
        timeout=training.round_deadline_s or MOST_STAGE_S,
    )(counted, context)
    if sums.added is None:
        raise EscalaError(
            f"round {round_}: secure aggregation stopped, fewer than {THRESHOLD:.0%} of {len(nodes)} clients"
            " answered every stage; their updates are lost, repeat the round"
        )
    return Summed(
        change=_decoded(training, weights, sums.added, round_),
        returned=sums.returned,
        down_bytes=counted.down_bytes,
        up_bytes=counted.up_bytes,
    )


def _workflow() -> Any:
    """Flower's workflow, mended: it asks for keys of clients that went before they shared any, and fails."""

    class Mended(flower().workflow):  # type: ignore[misc] # Flower's class is found when it is needed
        """Clients that did not share their keys are as if they had never been asked."""

        def share_keys_stage(self, grid: Any, context: Any, state: Any) -> bool:
            """As Flower does; then only those that shared count as sampled, and as anyone's neighbours."""
            is_done = super().share_keys_stage(grid, context, state)
            sharing = set(state.active_node_ids)
            state.sampled_node_ids = sharing
            state.nid_to_neighbours = {node: state.nid_to_neighbours[node] & sharing for node in sharing}
            return bool(is_done) and self._check_threshold(state)

    return Mended


class _Sums:
    """What the workflow asks of a strategy and of a client manager: whom to ask, what to do with the sum."""

    def __init__(self, nodes: Mapping[int, int], weights: Weights, round_: int) -> None:
        self._nodes, self._weights, self._round = nodes, weights, round_
        self.added: list[Any] | None = None
        self.returned: tuple[int, ...] = ()

    def num_available(self) -> int:
        """How many could be asked."""
        return len(self._nodes)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        """Everyone of the cohort with the weights and the round."""
        config = {ROUND: self._round, "names": "\n".join(self._weights)}
        return [
            (SimpleNamespace(node_id=node, cid=str(client)), flower().fit(parameters, config))
            for client, node in self._nodes.items()
        ]

    def aggregate_fit(
        self, server_round: int, results: list[Any], failures: list[Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Every result holds the mean; it is taken once."""
        if results:
            self.added = flower().arrays_of(results[0][1].parameters)
            self.returned = tuple(sorted(int(proxy.cid) for proxy, _ in results))
        return None, {}


class _Counted:
    """A grid that adds up the bytes of what passes."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.down_bytes = self.up_bytes = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """As the grid does."""
        sent = list(messages)
        self.down_bytes += sum(map(total_bytes, sent))
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        self.up_bytes += sum(map(total_bytes, replies))
        return replies


def _decoded(training: Training, weights: Weights, added: list[Any], round_: int) -> Weights:
    """The mean change of the weights: sums stand at the places that all clients sent."""
    shapes = {name: each.shape for name, each in weights.items()}
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    packed, _ = pack(training.codec_up, zeros, {}, masks(training.seed, round_, is_up=True))
    values = iter(added)
    filled = {
        key: np.asarray(next(values)).astype(array.dtype).reshape(array.shape) if _is_value(key) else array
        for key, array in packed.items()
    }
    return unpack(training.codec_up, filled, shapes)


def _is_value(key: str) -> bool:
    return key.rpartition(SEPARATOR)[2] == "values"


def _refuse_beyond(sent: list[Any], samples: int, bounds: Range) -> None:
    most = max((float(np.abs(each).max(initial=0.0)) for each in sent), default=0.0)
    if most > bounds.most or samples > bounds.samples:
        raise InvalidInput(
            f"an update reaches {most:g} with {samples} samples, secure aggregation was set up for"
            f" {bounds.most:g} and {bounds.samples}; set it up for more"
        )
