"""Rounds over the Grid in this process: cohorts, deadlines, faulty clients, late updates, resuming."""

from dataclasses import replace

import numpy as np
import pytest

from escala.federated.codecs import update_bytes
from escala.federated.ranges import exactly
from escala.federated.training import Algorithm, Codec, Privacy, Robust, Selection, Training

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")
flower = pytest.importorskip("escala.federated.flower")

from escala.federated.clientapp import client_app, wrapped  # noqa: E402
from escala.federated.digest import digest  # noqa: E402
from escala.federated.fleet import no_history  # noqa: E402
from escala.federated.grid import VirtualGrid  # noqa: E402
from escala.federated.ledger import Ledger, read_ledger  # noqa: E402
from escala.federated.mods import mods_of, packing_of  # noqa: E402
from escala.federated.nodes import TooFew  # noqa: E402
from escala.federated.rounds import Rounds, Standing  # noqa: E402
from escala.federated.selection import choose  # noqa: E402
from escala.federated.serverstate import load, rounds_of, save  # noqa: E402
from escala.federated.strategy import EVERYBODY, strategy_of  # noqa: E402
from federated.softmax import Softmax  # noqa: E402

FULL = Training(rounds=exactly(3), clients_per_round=4, batch=8, learning_rate=0.2)


def a_run(training, fleet, *, mods=(), standing=None, strategy=None, app=None, **given):
    """Rounds of the softmax learner over a grid; the app may be another one."""
    learner = Softmax(training)
    grid = VirtualGrid(app or client_app(learner, mods), fleet, epochs=training.local_epochs)
    standing = standing or Standing(weights=learner.first(), history=no_history(len(fleet)))
    strategy = strategy or strategy_of(training, len(fleet))
    return Rounds(grid, strategy, training, fleet, standing, evaluate=learner.score, **given), grid


def by_hand(training, rounds, clients):
    """FedAvg without any message: the mean of what each client's training gives."""
    learner = Softmax(training)
    weights = learner.first()
    for round_ in range(1, rounds + 1):
        updates = [learner.train(weights, client=each, round_=round_).weights for each in clients]
        weights = {
            name: np.mean([each[name] for each in updates], axis=0, dtype=np.float64).astype(np.float32)
            for name in weights
        }
    return weights


def faulty(client, change):
    """A mod that spoils the replies of one client."""

    def mod(message, context, handle):
        reply = handle(message, context)
        if context.node_config["partition-id"] == client and message.metadata.message_type == "train":
            change(reply)
        return reply

    return mod


def put(arrays):
    def change(reply):
        reply.content["arrays"] = flower.record_of(arrays)

    return change


def test_rounds_give_the_mean_of_the_clients_own_training(fleet_of_hand):
    rounds, _ = a_run(FULL, fleet_of_hand(4))

    records = list(rounds.until(3))

    expected = by_hand(FULL, 3, range(4))
    assert rounds.standing.weights["w"] == pytest.approx(expected["w"], abs=1e-6)
    assert [each.cohort for each in records] == [(0, 1, 2, 3)] * 3
    assert records[-1].metrics["accuracy"] == Softmax(FULL).score(expected)["accuracy"]
    # 4 clients * (12 + 3 float32 and two headers of 128 bytes) = 4 * 316 bytes each way
    assert (records[0].down_bytes, records[0].up_bytes) == (1264, 1264)


def test_cohorts_are_those_of_the_selection_whatever_the_nodes_are_called(fleet_of_hand):
    training = replace(FULL, clients_per_round=3, seed=5)
    fleet = fleet_of_hand(10)
    rounds, _ = a_run(training, fleet)

    cohorts = [each.cohort for each in rounds.until(3)]

    everybody = np.ones(10, np.bool_)
    chosen = [choose(training, fleet, no_history(10), everybody, round_=r, hour=0) for r in (1, 2, 3)]
    assert cohorts == [tuple(int(client) for client in each) for each in chosen]


def test_a_round_ends_with_the_first_m_of_k(fleet_of_hand):
    # all 6 are asked; 3 have to return; client c needs 10 * (c + 1) s, so 0, 1 and 2 do
    training = replace(FULL, clients_per_round=3, over_selection=2.0)
    rounds, _ = a_run(training, fleet_of_hand(6, sample_s=np.arange(1.0, 7.0)))

    (record,) = rounds.until(1)

    assert record.returned == (0, 1, 2)
    assert record.lost == {"late": 3}
    assert 30.0 < record.round_s < 32.0


def test_a_deadline_leaves_late_clients_behind(fleet_of_hand):
    training = replace(FULL, round_deadline_s=25.0)
    rounds, _ = a_run(training, fleet_of_hand(4, sample_s=np.arange(1.0, 5.0)))

    (record,) = rounds.until(1)

    assert record.returned == (0, 1)
    assert (record.lost, record.round_s) == ({"late": 2}, pytest.approx(25.0))


def test_a_late_update_counts_in_a_later_round_by_its_age(fleet_of_hand):
    # client 1 needs 40 s and rounds end after 25 s: what it learnt in round 1 comes one round late
    training = replace(FULL, clients_per_round=2, round_deadline_s=25.0, merges_late=True)
    rounds, _ = a_run(training, fleet_of_hand(2, sample_s=np.array([1.0, 4.0])))

    first, second = rounds.until(2)

    learner = Softmax(training)
    start = learner.first()
    after = learner.train(start, client=0, round_=1).weights
    own = learner.train(after, client=0, round_=2).weights
    late = learner.train(start, client=1, round_=1).weights
    # weights 20 and 20 / sqrt(2): the late change is added to the present weights
    share = 1 / (1 + np.sqrt(2))
    expected = (1 - share) * own["w"] + share * (after["w"] + late["w"] - start["w"])
    assert first.returned == (0,)
    assert second.returned == (0, 1)
    assert rounds.standing.weights["w"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put({"w": np.full((4, 3), np.nan, np.float32), "b": np.zeros(3, np.float32)}), "not-finite"),
        (put({"w": np.zeros((3, 4), np.float32), "b": np.zeros(3, np.float32)}), "wrong-shape"),
        (put({"w": np.zeros((4, 3), np.float64), "b": np.zeros(3, np.float32)}), "wrong-shape"),
        (put({"w": np.zeros((4, 3), np.float32)}), "wrong-shape"),
        (put({"w": np.zeros(100_000, np.float32), "b": np.zeros(3, np.float32)}), "too-large"),
        (lambda reply: reply.content["metrics"].update({"num-examples": -1}), "wrong-count"),
        (lambda reply: reply.content["metrics"].update({"num-examples": float("nan")}), "wrong-count"),
        (lambda reply: reply.content["metrics"].update({"loss": float("inf")}), "not-finite"),
        (lambda reply: reply.content.pop("arrays"), "wrong-shape"),
        (lambda reply: reply.content.pop("metrics"), "wrong-count"),
        (lambda reply: setattr(reply.content["arrays"]["w"], "data", b"no array"), "wrong-shape"),
        (lambda reply: 1 / 0, "error"),
    ],
)
def test_a_client_that_sends_garbage_is_set_aside_and_the_round_goes_on(fleet_of_hand, change, reason):
    rounds, _ = a_run(FULL, fleet_of_hand(4), mods=[faulty(2, change)])

    (record,) = rounds.until(1)

    assert record.returned == (0, 1, 3)
    assert record.lost == {reason: 1}
    expected = by_hand(FULL, 1, [0, 1, 3])
    assert rounds.standing.weights["w"] == pytest.approx(expected["w"], abs=1e-6)


def test_too_few_replies_repeat_the_round_with_others_and_never_pass_in_silence(fleet_of_hand):
    training = replace(FULL, clients_per_round=2, least_clients=2, seed=3)
    nan = put({"w": np.full((4, 3), np.nan, np.float32), "b": np.zeros(3, np.float32)})
    fleet = fleet_of_hand(4)
    bad = int(choose(training, fleet, no_history(4), np.ones(4, np.bool_), round_=1, hour=0)[0])
    rounds, _ = a_run(training, fleet, mods=[faulty(bad, nan)])

    (record,) = rounds.until(1)

    assert len(record.returned) == 2
    assert bad not in record.returned
    with pytest.raises(
        TooFew, match=r"round 1 had 3 valid replies of at least 4.*1 not-finite.*least_clients"
    ):
        list(a_run(replace(FULL, least_clients=4), fleet, mods=[faulty(bad, nan)])[0].until(1))


PACKED = {
    "codec_up": Codec(kind="top-k", keep_ratio=0.3, has_feedback=True),
    "codec_down": Codec(kind="int8", has_feedback=True),
}


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithm": Algorithm.FEDADAM},
        {"algorithm": Algorithm.FEDYOGI},
        {"algorithm": Algorithm.SCAFFOLD},
        {"algorithm": Algorithm.FEDPROX, "proximal": 0.1},
        PACKED,
    ],
    ids=str,
)
def test_a_run_that_is_resumed_gives_the_same_weights(fleet_of_hand, tmp_path, changed):
    training = replace(FULL, clients_per_round=3, seed=2, **changed)
    mods = mods_of(training)
    fleet = fleet_of_hand(5)
    whole, _ = a_run(training, fleet, mods=mods, packing=packing_of(training))
    wanted = list(whole.until(6))
    strategy, packing = strategy_of(training, 5), packing_of(training)
    begun, grid = a_run(training, fleet, mods=mods, strategy=strategy, packing=packing)
    for record in begun.until(3):
        save(tmp_path, record, begun.standing, strategy, packing)
    next(begun.until(4))  # done, but killed before it was written down

    again, packing = strategy_of(training, 5), packing_of(training)
    standing = load(tmp_path, again, packing)
    score = Softmax(training).score
    resumed = Rounds(grid, again, training, fleet, standing, packing=packing, evaluate=score)
    for record in resumed.until(6):
        save(tmp_path, record, resumed.standing, again, packing)

    assert digest(resumed.standing.weights) == digest(whole.standing.weights)
    assert [each.cohort for each in rounds_of(tmp_path)] == [each.cohort for each in wanted]
    assert [each.weights_digest for each in rounds_of(tmp_path)] == [each.weights_digest for each in wanted]


def test_fedbuff_steps_after_its_buffer_and_keeps_clients_busy(fleet_of_hand):
    # 4 of 6 work at a time; fast ones return several times while the slow one works
    training = replace(FULL, algorithm=Algorithm.FEDBUFF, buffer=2, seed=4)
    rounds, _ = a_run(training, fleet_of_hand(6, sample_s=np.array([1.0, 1, 1, 1, 1, 9.0])))

    records = list(rounds.until(8))

    # 2 updates a step, of one client or of two
    assert sum(each.up_bytes for each in records) >= 8 * 2 * 316
    assert all(len(each.returned) in (1, 2) for each in records)
    assert records[-1].metrics["accuracy"] > records[0].metrics["accuracy"]


@pytest.mark.parametrize(
    "rule",
    [
        {"robust": Robust.MEDIAN},
        {"robust": Robust.TRIMMED_MEAN},
        {"robust": Robust.KRUM},
        {"robust": Robust.KRUM, "algorithm": Algorithm.FEDADAM},
        {"robust": Robust.NORM_BOUND, "norm_bound": 1.0},
    ],
    ids=str,
)
def test_robust_rules_survive_a_client_that_lies(fleet_of_hand, rule):
    training = replace(FULL, clients_per_round=5, least_clients=5, attackers=1, **rule)
    lie = put({"w": np.full((4, 3), 1e6, np.float32), "b": np.zeros(3, np.float32)})
    rounds, _ = a_run(training, fleet_of_hand(5), mods=[faulty(1, lie)])

    list(rounds.until(2))

    assert np.abs(rounds.standing.weights["w"]).max() < 10


def test_a_cohort_by_chance_may_be_empty(fleet_of_hand):
    training = replace(FULL, clients_per_round=1, selection=Selection.POISSON, seed=11)
    rounds, _ = a_run(training, fleet_of_hand(3))

    sizes = {len(each.cohort) for each in rounds.until(12)}

    assert 0 in sizes
    assert len(sizes) > 1


def test_a_users_own_app_runs_without_knowing_of_us(fleet_of_hand):
    app = flower.ClientApp()

    @app.train()
    def train(message, context):
        arrays = {name: each + 1 for name, each in flower.arrays_of(message.content["arrays"]).items()}
        metrics = flower.MetricRecord({"num-examples": 5})
        content = flower.RecordDict({"arrays": flower.record_of(arrays), "metrics": metrics})
        return flower.Message(content, reply_to=message)

    rounds, _ = a_run(FULL, fleet_of_hand(4), app=wrapped(app))

    list(rounds.until(2))

    assert rounds.standing.weights["b"].tolist() == [2.0] * 3


def test_every_message_is_in_the_ledger(fleet_of_hand, tmp_path):
    nan = put({"w": np.full((4, 3), np.nan, np.float32), "b": np.zeros(3, np.float32)})
    rounds, _ = a_run(FULL, fleet_of_hand(4), mods=[faulty(3, nan)], ledger=Ledger(tmp_path / "m.jsonl"))

    records = list(rounds.until(2))

    letters = read_ledger(tmp_path / "m.jsonl")
    assert len(letters) == 2 * 8
    assert sum(each.payload_bytes for each in letters if each.way == "up") == sum(r.up_bytes for r in records)
    assert {each.outcome for each in letters} == {"sent", "counted", "not-finite"}
    assert all(each.total_bytes > each.payload_bytes for each in letters)


def test_packed_rounds_agree_with_clients_and_send_the_bytes_of_the_codec(fleet_of_hand):
    # half of six clients a round: most have missed steps, and are sent all or what they lack
    up, down = Codec(kind="int8"), Codec(kind="top-k", keep_ratio=0.3)
    training = replace(FULL, clients_per_round=3, codec_up=up, codec_down=down)

    rounds, _ = a_run(training, fleet_of_hand(6), mods=mods_of(training), packing=packing_of(training))
    records = list(rounds.until(12))

    shapes = {"w": (4, 3), "b": (3,)}
    assert {each.up_bytes for each in records} == {3 * update_bytes(up, shapes)}
    assert all(each.lost == {} for each in records)
    plain = by_hand_full(FULL, 12, fleet_of_hand)
    assert records[-1].metrics["accuracy"] >= plain - 0.1


def by_hand_full(training, count, fleet_of_hand):
    rounds, _ = a_run(replace(training, clients_per_round=3), fleet_of_hand(6))
    return list(rounds.until(count))[-1].metrics["accuracy"]


def test_a_client_that_sends_what_the_codec_does_not_have_is_set_aside(fleet_of_hand):
    training = replace(FULL, codec_up=Codec(kind="int8"), least_clients=3)
    spoilt = faulty(2, put({"w|values": np.zeros((4, 3), np.int8)}))

    rounds, _ = a_run(
        training, fleet_of_hand(4), mods=[spoilt, *mods_of(training)], packing=packing_of(training)
    )

    assert next(rounds.until(1)).lost == {"wrong-shape": 1}


def test_private_rounds_clip_every_update_and_tell_what_was_spent(fleet_of_hand):
    # each client moves the weights by clip over expected, 0.05 / 2, at most; noise of 1e-3 of that is nothing
    quiet = Privacy(place="central", noise_ratio=1e-3, clip=0.05, delta=1e-5)
    training = replace(FULL, clients_per_round=2, selection=Selection.POISSON, privacy=quiet)

    rounds, _ = a_run(training, fleet_of_hand(4))
    before, spent = rounds.standing.weights, []
    for record in rounds.until(6):
        now = rounds.standing.weights
        step = np.sqrt(sum(np.square(now[name] - before[name]).sum() for name in now))
        assert step <= len(record.returned) * 0.05 / 2 + 1e-3
        assert not [name for name in record.metrics if name.startswith("train_")]
        before = now
        spent.append(record.epsilon)

    assert spent == sorted(spent)
    assert spent[0] > 0


def test_noise_comes_even_where_nobody_does_and_never_twice_the_same(fleet_of_hand):
    loud = Privacy(place="central", noise_ratio=2.0, clip=1.0, delta=1e-5)
    training = replace(FULL, clients_per_round=1, selection=Selection.POISSON, privacy=loud)
    seed = next(each for each in range(50) if not cohort_of(replace(training, seed=each), fleet_of_hand(9)))

    moved = []
    for _ in range(2):
        rounds, _ = a_run(replace(training, seed=seed), fleet_of_hand(9))
        assert next(rounds.until(1)).returned == ()
        moved.append(rounds.standing.weights["w"])

    assert np.abs(moved[0]).min() > 0
    assert not np.array_equal(moved[0], moved[1])


def cohort_of(training, fleet):
    here = np.ones(len(fleet), np.bool_)
    return list(choose(training, fleet, no_history(len(fleet)), here, round_=1, hour=0))


def test_clients_kept_out_for_their_data_are_never_asked(fleet_of_hand):
    rounds, _ = a_run(FULL, fleet_of_hand(6), kept_out=[1, 4])

    assert [each.cohort for each in rounds.until(3)] == [(0, 2, 3, 5)] * 3


@pytest.mark.parametrize(("rule", "given"), [("Bulyan", {}), ("MultiKrum", {"num_nodes_to_select": 4})])
def test_any_strategy_of_flower_runs_by_our_rules(fleet_of_hand, rule, given):
    # Bulyan holds against f of 4 f + 3 clients
    training = replace(FULL, clients_per_round=7, least_clients=7)
    strategy = getattr(flower, rule)(**EVERYBODY, num_malicious_nodes=1, **given)
    lie = put({"w": np.full((4, 3), 1e6, np.float32), "b": np.zeros(3, np.float32)})
    rounds, _ = a_run(training, fleet_of_hand(7), mods=[faulty(1, lie)], strategy=strategy)

    assert len(list(rounds.until(2))) == 2
    assert np.abs(rounds.standing.weights["w"]).max() < 10
