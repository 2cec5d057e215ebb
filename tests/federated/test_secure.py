"""Secure aggregation by Flower's workflow: the mean is right, updates stay masked, bytes are counted."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

pytest.importorskip("flwr")

from escala.errors import EscalaError, InvalidInput
from escala.federated.clientapp import client_app, wrapped
from escala.federated.fleet import no_history
from escala.federated.flower import Message, become_server
from escala.federated.grid import VirtualGrid
from escala.federated.nodes import TooFew
from escala.federated.ranges import exactly
from escala.federated.rounds import Rounds, Standing
from escala.federated.secure import Range, secure_app, secure_mean
from escala.federated.securerounds import SecureRounds, bounds_of, secure_client
from escala.federated.strategy import strategy_of
from escala.federated.training import Algorithm, Codec, Training
from federated.softmax import Softmax

pytestmark = pytest.mark.optional
SECURE = Training(rounds=exactly(1), clients_per_round=5, has_secure_aggregation=True, least_clients=3)
BOUNDS = Range(most=1.0, samples=100)
WEIGHTS = {"a": np.zeros((40, 5), np.float32), "b": np.zeros(7, np.float32)}


def change_of(client, name):
    return np.random.default_rng([client, len(name)]).normal(0, 0.1, WEIGHTS[name].shape).astype(np.float32)


def trained(weights, client, round_):
    return {name: each + change_of(client, name) for name, each in weights.items()}, 10 * (client + 1)


def expected(clients):
    samples = np.array([10 * (client + 1) for client in clients])
    shares = samples / samples.sum()
    return {
        name: sum(share * change_of(client, name) for share, client in zip(shares, clients, strict=True))
        for name in WEIGHTS
    }


class Line:
    """A grid in this process that remembers what went up; some nodes may fall silent after a stage."""

    def __init__(self, app, clients, silent_from=None):
        from flwr.app import Context, RecordDict

        become_server()
        self.app, self.stage, self.silent_from, self.went_up = app, -1, silent_from or {}, []
        self.contexts = {
            client + 2: Context(
                1, client + 2, {"partition-id": client, "num-partitions": clients}, RecordDict(), {}
            )
            for client in range(clients)
        }

    def send_and_receive(self, messages, *, timeout=None):
        self.stage += 1
        replies = []
        for number, message in enumerate(messages):
            node = message.metadata.dst_node_id
            if self.stage >= self.silent_from.get(node - 2, 99):
                continue
            message.metadata.__dict__["_message_id"] = f"{self.stage}-{number}"
            replies.append(self.app(own(message), self.contexts[node]))
        self.went_up += replies
        return replies


def own(message):
    from flwr.app import RecordDict

    copy = Message(
        RecordDict({name: type(each)(dict(each)) for name, each in message.content.items()}),
        message.metadata.dst_node_id,
        message.metadata.message_type,
    )
    copy.metadata.__dict__["_message_id"] = message.metadata.message_id
    return copy


def nodes(clients):
    return {client: client + 2 for client in range(clients)}


def is_near(given, wanted, step):
    return all(np.abs(given[name] - wanted[name]).max() <= step for name in wanted)


def test_the_mean_of_masked_updates_is_that_of_plain_ones():
    line = Line(secure_app(trained, SECURE, BOUNDS), 5)

    summed = secure_mean(line, nodes(5), WEIGHTS, 1, SECURE, BOUNDS)

    # a step is 2 / 2^22 of what is sent, weighted by samples / 100; five of them over 150 samples
    assert summed.returned == (0, 1, 2, 3, 4)
    assert is_near(summed.change, expected(range(5)), 5 * 2 / 2**22 * 100 / 150 + 1e-6)


def test_a_masked_update_tells_nothing_of_the_plain_one():
    line = Line(secure_app(trained, SECURE, BOUNDS), 5)
    secure_mean(line, nodes(5), WEIGHTS, 1, SECURE, BOUNDS)

    masked = [np.load(BytesIO(each)) for each in masked_of(line, 3)]
    plain = change_of(3, "a").ravel()
    # 200 numbers: a chance correlation is below 5 / sqrt(200) = 0.35; unmasked ones would correlate by 1
    assert abs(np.corrcoef(masked[1].ravel().astype(np.float64), plain)[0, 1]) < 0.35
    assert masked[1].min() >= 0
    assert masked[1].max() > 2**31


def masked_of(line, client):
    values = [
        value
        for reply in line.went_up
        if reply.metadata.src_node_id == client + 2
        for record in reply.content.config_records.values()
        for value in record.values()
    ]
    (masked,) = [each for each in values if isinstance(each, list) and is_array(each[0])]
    return masked


def is_array(value):
    return isinstance(value, bytes) and value.startswith(b"\x93NUMPY")


def test_bytes_of_masked_numbers_are_twice_those_of_plain_ones():
    line = Line(secure_app(trained, SECURE, BOUNDS), 5)

    summed = secure_mean(line, nodes(5), WEIGHTS, 1, SECURE, BOUNDS)

    # 207 numbers of 8 bytes and 3 headers of 128 a client, beside keys, shares and names
    assert 5 * (207 * 8 + 3 * 128) < summed.up_bytes < 5 * (207 * 8 + 3 * 128 + 6000)
    assert summed.down_bytes > 5 * (207 * 4 + 2 * 128)


@pytest.mark.parametrize("stage", [0, 1, 2], ids=["at once", "before sharing keys", "after"])
def test_a_client_that_falls_silent_is_left_out_of_the_sum(stage):
    line = Line(secure_app(trained, SECURE, BOUNDS), 5, silent_from={4: stage})

    summed = secure_mean(line, nodes(5), WEIGHTS, 1, SECURE, BOUNDS)

    assert summed.returned == (0, 1, 2, 3)
    assert is_near(summed.change, expected(range(4)), 1e-5)


def test_two_clients_may_fall_silent_at_different_stages():
    line = Line(secure_app(trained, SECURE, BOUNDS), 9, silent_from={4: 1, 7: 2})

    summed = secure_mean(line, nodes(9), WEIGHTS, 1, SECURE, BOUNDS)

    left = [0, 1, 2, 3, 5, 6, 8]
    assert summed.returned == tuple(left)
    assert is_near(summed.change, expected(left), 1e-5)


def test_too_many_silent_clients_end_the_round_aloud():
    line = Line(secure_app(trained, SECURE, BOUNDS), 5, silent_from={1: 2, 2: 2, 3: 2})

    with pytest.raises(EscalaError, match="secure aggregation stopped"):
        secure_mean(line, nodes(5), WEIGHTS, 1, SECURE, BOUNDS)


def test_rand_k_under_masks_sends_a_share_of_the_numbers():
    training = replace(SECURE, codec_up=Codec(kind="rand-k", keep_ratio=0.1))
    line = Line(secure_app(trained, training, BOUNDS), 5)

    summed = secure_mean(line, nodes(5), WEIGHTS, 1, training, BOUNDS)

    # the places that were drawn hold ten times the mean (7 for the bias: 1 of 7), all others nothing
    sent = summed.change["a"] != 0
    assert sent.sum() == 20
    assert summed.change["a"][sent] == pytest.approx(10 * expected(range(5))["a"][sent], abs=2e-3)


def test_updates_beyond_the_bounds_are_refused_not_cut():
    line = Line(secure_app(trained, SECURE, replace(BOUNDS, most=0.01)), 5)

    with pytest.raises(InvalidInput, match=r"was set up for 0\.01"):
        secure_mean(line, nodes(5), WEIGHTS, 1, SECURE, replace(BOUNDS, most=0.01))


def test_cohorts_that_the_sum_does_not_hold_are_refused():
    with pytest.raises(InvalidInput, match="from 3 to 1024"):
        secure_mean(Line(None, 2), nodes(2), WEIGHTS, 1, SECURE, BOUNDS)


@pytest.mark.parametrize("algorithm", [Algorithm.FEDAVG, Algorithm.FEDADAM])
def test_secure_rounds_learn_what_plain_ones_do(fleet_of_hand, algorithm):
    training = replace(SECURE, algorithm=algorithm, batch=8, learning_rate=0.2)
    plain = replace(training, has_secure_aggregation=False)
    learner, fleet = Softmax(training), fleet_of_hand(5)
    standing = [Standing(weights=learner.first(), history=no_history(5)) for _ in range(2)]
    grid = VirtualGrid(wrapped(secure_client(learner, 5)), fleet)
    strategy, bounds = strategy_of(training, 5), bounds_of(learner, 5)
    secure = SecureRounds(grid, strategy, training, fleet, standing[0], bounds=bounds, evaluate=learner.score)
    open_ = Rounds(VirtualGrid(client_app(learner), fleet), strategy_of(plain, 5), plain, fleet, standing[1])

    records = list(secure.until(3))
    list(open_.until(3))

    # three rounds of steps of 4 / 2^22; Adam divides by the root of what it saw, at least 1e-3
    most = 3 * 4 / 2**22 if algorithm is Algorithm.FEDAVG else 3 * 4 / 2**22 * 1e3
    assert is_near(standing[0].weights, standing[1].weights, most + 1e-6)
    assert [each.returned for each in records] == [(0, 1, 2, 3, 4)] * 3
    assert records[-1].metrics["accuracy"] == learner.score(standing[1].weights)["accuracy"]


def test_secure_rounds_with_too_few_answers_end_aloud(fleet_of_hand):
    learner = Softmax(SECURE)
    fleet = fleet_of_hand(5, arrival_ratio=np.array([1.0, 1.0, 0.0, 0.0, 0.0]))
    standing = Standing(weights=learner.first(), history=no_history(5))
    grid = VirtualGrid(wrapped(secure_client(learner, 5)), fleet)
    rounds = SecureRounds(
        grid,
        strategy_of(SECURE, 5),
        SECURE,
        fleet,
        standing,
        bounds=bounds_of(learner, 5),
        evaluate=learner.score,
    )

    with pytest.raises(TooFew, match="clients are online"):
        next(rounds.until(1))
