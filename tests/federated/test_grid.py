"""The Grid in this process: virtual seconds by hand, losses by seed, replies as Flower gives them."""

import numpy as np
import pytest

from escala.errors import MissingExtra
from escala.federated.flowerversion import refuse_other_versions

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")
flower = pytest.importorskip("escala.federated.flower")
grids = pytest.importorskip("escala.federated.grid")

HEADER = 128  # bytes of NumPy before the numbers of an array


def echo(message, context):
    """Sends the arrays back with one added, and the number of the client."""
    arrays = flower.arrays_of(message.content["arrays"])
    content = flower.RecordDict(
        {
            "arrays": flower.record_of({name: each + 1 for name, each in arrays.items()}),
            "metrics": flower.MetricRecord({"client": context.node_config["partition-id"]}),
        }
    )
    return flower.Message(content, reply_to=message)


def messages(clients, values=218):
    """One message of 218 float32 to each: 872 bytes and a header, 1,000 bytes."""
    record = flower.record_of({"w": np.zeros(values, np.float32)})
    content = flower.RecordDict({"arrays": record})
    return [flower.Message(content, client + grids.FIRST_NODE, "train") for client in clients]


def clients_of(replies):
    return [reply.content["metrics"]["client"] for reply in replies if reply.has_content()]


def test_a_round_takes_latency_bytes_over_rates_start_and_samples(fleet_of_hand):
    # 0.5 s + 1,000 B / 1 kB/s + 2 s + 2 epochs * 10 samples * 1 s + 0.5 s + 1,000 B / 1 kB/s = 25 s
    grid = grids.VirtualGrid(
        echo, fleet_of_hand(1, latency_s=np.array([0.5]), start_s=np.array([2.0])), epochs=2
    )
    sent = messages([0])

    (reply,) = grid.send_and_receive(sent)

    assert flower.payload_bytes(sent[0]) == 872 + HEADER
    assert grid.now_s == pytest.approx(25.0, rel=1e-12)
    assert flower.arrays_of(reply.content["arrays"])["w"][0] == 1


def test_who_is_late_arrives_later_and_once(fleet_of_hand):
    # 1 + 10 + 1 = 12 s for client 0; 1 + 30 + 1 = 32 s for client 1
    grid = grids.VirtualGrid(echo, fleet_of_hand(2, sample_s=np.array([1.0, 3.0])))
    names = grid.push_messages(messages([0, 1]))

    grid.wait(20.0)
    first_s, first = grid.now_s, clients_of(grid.pull_messages(names))
    grid.wait(5.0)
    none = grid.pull_messages(names)
    grid.wait(100.0)

    assert (first_s, first, none) == (12.0, [0], [])
    assert (grid.now_s, clients_of(grid.pull_messages(names))) == (32.0, [1])
    assert grid.pull_messages(names) == []


def test_a_client_works_on_one_message_after_the_other(fleet_of_hand):
    # both reach it after 1 s; the second begins at 11 s, when the first is done, and is back at 22 s
    grid = grids.VirtualGrid(echo, fleet_of_hand(1))

    assert len(grid.send_and_receive(messages([0, 0]))) == 2
    assert grid.now_s == pytest.approx(22.0, rel=1e-12)


def test_a_deadline_ends_the_wait(fleet_of_hand):
    grid = grids.VirtualGrid(echo, fleet_of_hand(2, sample_s=np.array([1.0, 3.0])))

    replies = grid.send_and_receive(messages([0, 1]), timeout=15.0)

    assert clients_of(replies) == [0]
    assert grid.now_s == 15.0


def test_losses_depend_on_seed_and_client_only(fleet_of_hand):
    fleet = fleet_of_hand(40, arrival_ratio=np.full(40, 0.8), dropout_ratio=np.full(40, 0.1))

    def back(order, seed=1):
        grid = grids.VirtualGrid(echo, fleet, seed=seed)
        return sorted(clients_of(grid.send_and_receive(messages(order), timeout=1e3)))

    # a message comes back with 0.8 * 0.9 * 0.8 = 0.576: 23 of 40
    assert back(range(40)) == back(reversed(range(40)))
    assert back(range(40)) != back(range(40), seed=2)
    assert 12 <= len(back(range(40))) <= 34


def test_what_an_app_raises_comes_back_as_an_error(fleet_of_hand):
    def fails(message, context):
        raise ValueError("no data")

    (reply,) = grids.VirtualGrid(fails, fleet_of_hand(1)).send_and_receive(messages([0]))

    assert reply.has_error()
    assert "no data" in reply.error.reason


def test_nodes_are_there_in_their_hours(fleet_of_hand):
    hours = np.zeros((2, 24), np.bool_)
    hours[0, 0] = hours[1, 1] = True
    grid = grids.VirtualGrid(echo, fleet_of_hand(2, hours=hours))

    first = grid.get_node_ids()
    grid.wait(3600.0)

    assert (first, grid.get_node_ids()) == ([2], [3])


def test_a_flower_strategy_trains_over_it(fleet_of_hand):
    def weighs(message, context):
        reply = echo(message, context)
        reply.content["metrics"] = flower.MetricRecord({"num-examples": 10, "loss": 1.0})
        return reply

    grid = grids.VirtualGrid(weighs, fleet_of_hand(3))
    strategy = flower.FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)

    result = strategy.start(grid, flower.record_of({"w": np.zeros(4, np.float32)}), num_rounds=2)

    assert flower.arrays_of(result.arrays)["w"].tolist() == [2.0] * 4


def test_a_client_cannot_change_what_another_one_receives(fleet_of_hand):
    def clears(message, context):
        had = len(message.content["arrays"])
        message.content["arrays"].clear()
        content = flower.RecordDict({"metrics": flower.MetricRecord({"client": had})})
        return flower.Message(content, reply_to=message)

    replies = grids.VirtualGrid(clears, fleet_of_hand(2)).send_and_receive(messages([0, 1]))

    assert clients_of(replies) == [1, 1]


def test_another_minor_version_is_refused_with_the_command_to_install():
    with pytest.raises(MissingExtra, match=r"1\.43\.0 is installed.*pip install 'flwr==1\.42"):
        refuse_other_versions("1.43.0")
    with pytest.raises(MissingExtra, match="not installed"):
        refuse_other_versions(None)
    refuse_other_versions("1.42.3")
