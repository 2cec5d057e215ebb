"""Packed messages in Flower: client and server agree, nothing is lost, bytes are those of the codec."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from escala.errors import InvalidInput
from escala.federated.codecs import update_bytes
from escala.federated.flower import arrays_of, become_server, payload_bytes, record_of, with_mods
from escala.federated.mods import goes_by_steps, is_packed, mods_of, packing_of
from escala.federated.ranges import exactly
from escala.federated.training import Codec, Privacy, Training

pytestmark = pytest.mark.optional
TOP = Codec(kind="top-k", keep_ratio=0.2, has_feedback=True)
INT8 = Codec(kind="int8")
TARGET = {
    "body": np.linspace(-1, 1, 100, dtype=np.float32).reshape(10, 10),
    "head": np.full(10, 0.5, np.float32),
}


def training_of(up=None, down=None, **more):
    return Training(
        rounds=exactly(1), clients_per_round=4, codec_up=up or Codec(), codec_down=down or Codec(), **more
    )


def towards(client):
    """A client that goes a tenth of the way to its own target, which is near the common one."""

    def app(message, context):
        given = arrays_of(message.content["arrays"])
        shift = 0.1 * (client - 1.5)
        after = {name: each + (TARGET[name] + shift - each) / np.float32(10) for name, each in given.items()}
        content = RecordDict({"arrays": record_of(after), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


class Federation:
    """Four clients and a server that averages; replies may be lost, clients may lose their state."""

    def __init__(self, training, sent=("*",)):
        become_server()
        self.training, self.sent = training, sent
        self.packing = packing_of(training, sent)
        self.weights = {name: np.zeros_like(each) for name, each in TARGET.items()}
        self.contexts = [Context(1, client, {}, RecordDict(), {}) for client in range(4)]
        self.down, self.up = [], []

    def round(self, round_, clients=range(4), lost=()):
        came = []
        for client in clients:
            record, had = self.packing.pack(self.weights, round_=round_, client=client)
            content = RecordDict({"arrays": record, "config": ConfigRecord({"server-round": round_})})
            message = Message(content, client, "train")
            self.down.append(payload_bytes(message))
            reply = self.handled(message, client)
            if reply is None or client in lost:
                continue
            self.up.append(payload_bytes(reply))
            record = reply.content["arrays"]
            came.append(self.packing.unpack(record, had, round_=round_, client=client))
        self.weights = {name: np.mean([each[name] for each in came], axis=0) for name in self.weights}

    def handled(self, message, client):
        app = with_mods(towards(client), mods_of(self.training, self.sent))
        try:
            return app(message, self.contexts[client])
        except InvalidInput:
            return None

    def apart(self):
        return max(np.abs(self.weights[name] - TARGET[name]).max() for name in TARGET)


def shapes():
    return {name: each.shape for name, each in TARGET.items()}


@pytest.mark.parametrize(("up", "down"), [(None, INT8), (TOP, None), (INT8, TOP), (TOP, TOP)])
def test_packed_federations_reach_the_common_target(up, down):
    federation = Federation(training_of(up, down))
    for round_ in range(1, 91):
        federation.round(round_)

    # 0.9^90 of the way is left, less than 0.0001. But clients pull apart by up to 0.15: top-k of a fifth
    # lets a tenth of that pile up for five rounds, 0.075, and one of four clients brings it, 0.019, each way
    assert federation.apart() < 2 * 0.019


def test_bytes_up_are_those_of_the_codec_and_down_those_of_a_step():
    federation = Federation(training_of(INT8, TOP))
    federation.round(1)
    federation.round(2)

    header = 128 + 6 * 8
    assert set(federation.up) == {update_bytes(INT8, shapes())}
    assert set(federation.down[:4]) == {update_bytes(Codec(), shapes()) + header}
    assert set(federation.down[4:]) == {update_bytes(TOP, shapes()) + header}


def test_lost_replies_and_lost_states_cost_bytes_but_no_agreement():
    federation = Federation(training_of(TOP, TOP))
    federation.round(1)
    federation.round(2, lost={0})
    federation.contexts[1] = Context(1, 1, {}, RecordDict(), {})
    federation.round(3)
    whole = update_bytes(Codec(), shapes()) + 128 + 48
    sent = [given == whole for given in federation.down]

    # round 1 all; round 2 nobody; round 3 client 0, whose reply was lost; client 1 could not follow
    assert sent == [True] * 4 + [False] * 4 + [True, False, False, False]
    assert len(federation.up) == 4 + 3 + 3
    for round_ in range(4, 70):
        federation.round(round_, clients=[round_ % 4, (round_ + 1) % 4, (round_ + 2) % 4])
    assert federation.apart() < 0.15


def test_only_the_tensors_asked_for_are_sent_and_move():
    federation = Federation(training_of(), sent=("head",))
    for round_ in range(1, 60):
        federation.round(round_)

    assert set(federation.up) == {update_bytes(Codec(), {"head": (10,)})}
    assert set(federation.down[4:]) == {update_bytes(Codec(), {"head": (10,)}) + 128 + 48}
    assert not federation.weights["body"].any()
    assert np.abs(federation.weights["head"] - TARGET["head"]).max() < 0.01


def test_answers_that_do_not_fit_are_refused():
    federation = Federation(training_of(INT8))
    record, had = federation.packing.pack(federation.weights, round_=1, client=0)
    wrong = record_of({"body": np.zeros((10, 10), np.float32)})

    with pytest.raises(InvalidInput):
        federation.packing.unpack(wrong, had, round_=1, client=0)
    assert arrays_of(record).keys() == TARGET.keys()
    with pytest.raises(InvalidInput, match=r"no tensor of the model is called lora\*"):
        packing_of(training_of(INT8), ("lora*",)).unpack(wrong, had, round_=1, client=0)


def test_plain_messages_are_left_alone():
    assert mods_of(training_of()) == []
    assert not is_packed(training_of())
    assert is_packed(training_of(INT8))
    assert not goes_by_steps(training_of(INT8))


def test_local_noise_is_added_before_packing():
    # clip 1e-3: what comes back is noise of 5 * 1e-3 on every number, through int8
    np.random.seed(7)  # noqa: NPY002 # Flower draws from here
    noise = Privacy(place="local", noise_ratio=5.0, clip=1e-3, delta=1e-5)
    federation = Federation(training_of(INT8, privacy=noise))
    federation.round(1, clients=[0])

    drawn = np.concatenate([each.ravel() for each in federation.weights.values()])
    # the deviation of 110 draws is known to 1 / sqrt(220) = 6.7 %
    assert drawn.std() == pytest.approx(5e-3, rel=5 * 0.067)
