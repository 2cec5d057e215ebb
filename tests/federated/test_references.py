"""Weights that go down by steps: server and clients hold the same bits, whatever got lost between."""

from dataclasses import replace

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.references import WHOLE, Broadcast, Held, received
from escala.federated.training import Codec

CODECS = (
    Codec(),
    Codec(kind="fp16"),
    Codec(kind="int8"),
    Codec(kind="top-k", keep_ratio=0.02),
    Codec(kind="rand-k", keep_ratio=0.1),
)


def some_weights(generator):
    return {
        "a": generator.normal(size=(30, 20)).astype(np.float32),
        "b": generator.normal(size=20),
        "seen": np.array([0], np.int64),
    }


def is_same(one, other):
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.kind)
def test_clients_never_drift_from_the_server(codec):
    # 12 clients, 60 rounds: a third takes part, parcels and answers get lost, clients lose their memory
    draw = np.random.default_rng(11)
    broadcast, weights = Broadcast(codec=codec, seed=4), some_weights(draw)
    held: list[Held | None] = [None] * 12
    for round_ in range(1, 61):
        broadcast.advance(weights, round_)
        for client in draw.choice(12, 4, replace=False):
            parcel = broadcast.parcel(client)
            broadcast.forget(client)
            if draw.random() < 0.1:
                held[client] = None
            if draw.random() < 0.1:
                continue
            try:
                held[client] = received(codec, held[client], parcel)
            except InvalidInput:
                assert held[client] is None
                continue
            assert is_same(held[client].weights, broadcast.held.weights)
            if draw.random() > 0.1:
                broadcast.confirm(client, round_)
        weights = {
            name: (each + 0.01 * draw.normal(size=each.shape)).astype(each.dtype)
            if each.dtype.kind == "f"
            else each + 1
            for name, each in weights.items()
        }


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.kind)
def test_what_a_codec_leaves_out_comes_later(codec):
    # the server's weights stand still: what clients hold comes ever nearer
    draw = np.random.default_rng(2)
    broadcast, target = Broadcast(codec=codec, seed=0), some_weights(draw)
    broadcast.advance({name: np.zeros_like(each) for name, each in target.items()}, 0)
    apart = []
    for round_ in range(1, 201):
        held = broadcast.advance(target, round_)
        apart.append(np.abs(held["a"] - target["a"]).max())

    assert apart[-1] < 1e-3 * np.abs(target["a"]).max()


def test_a_client_that_is_far_behind_is_sent_everything():
    # int8 steps are about a quarter of the weights: from the fourth one on everything is shorter
    weights = {"w": np.zeros(10_000, np.float32)}
    broadcast = Broadcast(codec=Codec(kind="int8"), seed=0)
    draw, since = np.random.default_rng(0), []
    broadcast.advance(weights, 1)
    broadcast.confirm(0, 1)
    for round_ in range(2, 8):
        broadcast.advance({"w": draw.normal(size=10_000).astype(np.float32)}, round_)
        since.append(broadcast.parcel(0).since)

    assert since == [1, 1, 1, WHOLE, WHOLE, WHOLE]
    assert len(broadcast.steps) == 3


def test_tensors_that_do_not_change_are_not_sent():
    broadcast = Broadcast(codec=Codec(), seed=0)
    broadcast.advance({"frozen": np.ones(1000, np.float32), "head": np.ones(5, np.float32)}, 1)
    broadcast.confirm(0, 1)
    broadcast.advance({"frozen": np.ones(1000, np.float32), "head": np.zeros(5, np.float32)}, 2)

    assert set(broadcast.parcel(0).arrays) == {"2|head"}


def test_steps_that_do_not_follow_and_wrong_digests_are_refused():
    codec = Codec(kind="int8")
    broadcast = Broadcast(codec=codec, seed=0)
    broadcast.advance({"w": np.ones(1000, np.float32)}, 1)
    first = broadcast.parcel(0)
    broadcast.confirm(0, 1)
    broadcast.advance({"w": np.zeros(1000, np.float32)}, 2)
    step = broadcast.parcel(0)

    with pytest.raises(InvalidInput, match="holds nothing"):
        received(codec, None, step)
    held = received(codec, None, first)
    with pytest.raises(InvalidInput, match="differ from those of the server"):
        received(codec, held, replace(step, digest="0" * 64))
    with pytest.raises(InvalidInput, match="names no version"):
        received(codec, held, replace(step, arrays={"w|values": np.zeros(1)}))
