"""Pauses of those who look for messages, by hand, alone and in the rounds of the event engine."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from escala.federated.codecs import packed_bytes
from escala.federated.events import rounds_of
from escala.federated.fleet import fleet_of
from escala.federated.phases import MESSAGE_OVERHEAD_BYTES
from escala.federated.population import Population, payload_of
from escala.federated.ranges import exactly
from escala.federated.reading import example_text, scenario_from_keys
from escala.federated.scenario import Server
from escala.federated.training import Codec, Training
from escala.federated.transport import FLOWER, IDEAL, Transport, before_work_s, looked_s, taken_s, waits_s
from federated.boards import access, clients, device, scenario

LOOKS = Transport(
    node_look_s=3.0, reply_look_s=0.5, server_look_s=0.2, retry_s=1.0, longest_retry_s=10.0, pulls=1
)
DRAWS = np.random.default_rng(0)
NEVER = np.inf


def taken(begins_s, there_s, last_s=None, transport=LOOKS):
    return taken_s(transport, np.array(begins_s), np.array(there_s), last_s, DRAWS)


def test_a_node_takes_work_up_at_its_next_look_or_when_it_has_ended_its_last():
    # idle since 0: it looks at 3, 6 and 9; idle since 4: at 4, 7, 10; at work until 12
    assert waits_s(LOOKS, np.array([0.0, 4.0, 7.0, 12.0]), 7.0) == pytest.approx([2.0, 0.0, 0.0, 5.0])
    assert waits_s(IDEAL, np.array([0.0, 4.0]), 7.0).tolist() == [0.0, 0.0]


def test_work_that_is_done_is_seen_at_the_next_half_second():
    assert looked_s(np.array([0.2, 0.5, 0.7]), 0.5) == pytest.approx([0.5, 0.5, 1.0])


def test_a_reply_that_is_on_its_way_is_tried_after_one_two_and_four_seconds():
    # found at the look at 0.2, tried at 0.2, 1.2, 3.2, 7.2, 15.2, 25.2
    assert taken([0.1], [0.15]) == pytest.approx([0.2])
    assert taken([0.1], [1.2]) == pytest.approx([1.2])
    assert taken([0.1], [1.3]) == pytest.approx([3.2])
    assert taken([0.1], [20.0]) == pytest.approx([25.2])


def test_a_slow_reply_holds_up_those_that_are_found_with_it_and_after_it():
    # both found at 0.2, had at 3.2; the third is there at 0.5 and found when the server looks again, at 3.4
    assert taken([0.1, 0.15, 0.4], [2.0, 0.2, 0.5]) == pytest.approx([3.2, 3.2, 3.4])


def test_a_deadline_does_not_end_what_the_server_is_taking():
    assert taken([0.9, 1.5], [2.5, 1.6], last_s=1.0) == pytest.approx([1.0 + 1.0 + 2.0, NEVER])
    assert taken([0.0, 0.0], [1.0, 1.1], last_s=1.0, transport=IDEAL) == pytest.approx([1.0, NEVER])


def test_pauses_between_tries_spread_by_a_fifth_and_no_more():
    found = [float(taken([0.0], [0.5], transport=FLOWER)[0]) for _ in range(200)]

    assert 0.8 <= min(found) < 0.85
    assert 1.15 < max(found) <= 1.2


def test_a_server_without_retries_has_a_reply_when_it_is_there():
    assert taken([0.1], [0.7], transport=replace(LOOKS, retry_s=0.0)) == pytest.approx([0.7])


def before_work(start_s, there_s, transport=LOOKS):
    return before_work_s(transport, np.array(start_s), np.array(there_s), np.random.default_rng(1))


def test_a_process_that_starts_with_its_message_tries_for_it_after_one_two_and_four_seconds():
    # up at 0.7 s: tries at 0.7, 1.7, 3.7 and 7.7; the message is there at the second number
    assert before_work([0.7] * 4, [0.2, 1.0, 2.0, 4.0]) == pytest.approx([0.5, 0.7, 1.7, 3.7])
    # of a message that comes at once start-up is left, as where the process starts when it is there
    assert before_work([0.7], [0.0]) == pytest.approx([0.7])
    assert before_work([0.7, 0.7], [0.0, 4.0], IDEAL) == pytest.approx([0.7, 0.7])


def test_the_slowest_of_the_threads_that_try_counts():
    start_s, there_s = np.zeros(4000), np.full(4000, 0.5)

    def mean_s(pulls):
        found = before_work(start_s, there_s, replace(FLOWER, pulls=pulls))
        assert found.min() >= 0.3
        assert found.max() <= 0.7
        return found.mean()

    # one pause of 1 s, shorter or longer by up to 0.2 s: the larger of two is 1/3 of 0.2 s longer on average
    assert mean_s(1) == pytest.approx(0.5, abs=0.01)
    assert mean_s(2) == pytest.approx(0.5 + 0.2 / 3, abs=0.01)


def one_client(transport, **training):
    """One client: 1 MB each way at 1 MB/s, 0.7 s to start, no samples' time worth telling."""
    line = access(up_bytes_per_s=exactly(1e6), down_bytes_per_s=exactly(1e6))
    board = clients(1, device=device(start_s=exactly(0.7)), access=line)
    asked = Training(rounds=exactly(3), clients_per_round=1, **training)
    made = scenario(board, training=asked, server=Server(round_s=0.5), transport=transport)
    quick = replace(board.device.targets[0], sample_s=exactly(1e-9))
    board = replace(board, device=replace(board.device, targets=(quick,)))
    learnt = replace(made.learnt, weights=250_000.0, trained_weights=250_000.0)
    return replace(made, clients=(board,), learnt=learnt)


BARE = replace(LOOKS, down_overhead_bytes=0.0, up_overhead_bytes=0.0)


def test_rounds_of_one_client_by_hand():
    given = one_client(BARE)

    found = list(rounds_of(Population(given, fleet_of(given, 0)), 2))

    # asked at 0, when it looks: 1 s down, meanwhile a process starts, tries at 0.7 s and finds it at 1.7 s;
    # work is seen 1.0 s after the message was there, so the upload begins at 2 and is there at 3;
    # the server finds it at 2.0 and tries at 3.0; 0.5 s of work
    assert found[0].round_s == pytest.approx(3.5)
    # the client looks again at 6.0, the server asked at 3.5
    assert found[1].round_s == pytest.approx(2.5 + 3.0 + 0.5, abs=0.21)


def test_a_client_that_is_known_to_be_busy_is_not_asked_and_one_that_is_not_known_to_be_is_late_again():
    line = access(up_bytes_per_s=exactly(1e6), down_bytes_per_s=exactly(6.5e4))
    late = {"round_deadline_s": 15.0}

    def lost(knows_busy):
        fast = one_client(replace(BARE, knows_busy=knows_busy), **late)
        slow = replace(fast.clients[0], name="slow", access=line)
        training = replace(fast.training, clients_per_round=2)
        both = replace(fast, clients=(*fast.clients, slow), training=training)
        rounds = list(rounds_of(Population(both, fleet_of(both, 0)), 3))
        return [sum(each.lost.values()) for each in rounds]

    # the slow one has its message after 15.4 s, tries at 15.7 s, and is heard of at 16.9 s of a round's 15 s:
    # it is asked again before that, and late again
    assert lost(knows_busy=False) == [1, 1, 1]
    assert lost(knows_busy=True) == [1, 0, 1]


def test_a_scenario_file_names_flower():
    keys = tomllib.loads(example_text("phones-keyboard"))

    assert scenario_from_keys(keys, "s.toml").transport == IDEAL
    assert scenario_from_keys({**keys, "server": {"transport": "flower"}}, "s.toml").transport == FLOWER


@pytest.mark.parametrize("codec", [Codec(), Codec(kind="int8")])
def test_messages_of_known_tensors_are_exact(codec):
    shapes = ((500, 500), (500,))
    asked = Training(rounds=exactly(1), clients_per_round=1, codec_up=codec)
    given = scenario(training=asked, transport=Transport(framing=1.5, up_overhead_bytes=100.0))
    given = replace(given, learnt=replace(given.learnt, shapes=shapes))

    found = payload_of(given)

    assert found.up_bytes == round(1.5 * sum(packed_bytes(codec, each) for each in shapes) + 100)
    # 4 B a number and a header of 128 B for each tensor
    assert found.down_bytes == round(1.5 * (4 * 250_500 + 2 * 128) + MESSAGE_OVERHEAD_BYTES)
