"""A scenario cut to its nodes, and as it travels inside the app."""

from dataclasses import replace

import pytest

from escala.errors import InvalidInput
from escala.federated.appsettings import AppSettings, read_settings, write_settings
from escala.federated.cutting import clients_in, cut_to, cuts
from escala.federated.ranges import exactly
from escala.federated.training import Algorithm, Codec, Training
from federated.boards import clients, scenario


def test_classes_keep_their_shares_largest_remainders_first():
    # 5 of 10 nodes for 7, 2 and 1 clients: 3.5, 1.0 and 0.5; one more for the first of the largest remainders
    whole = scenario(clients(7, name="a"), clients(2, name="b"), clients(1, name="c"))

    cut = cut_to(whole, 5)

    assert {each.name: each.clients for each in cut.clients} == {"a": 4, "b": 1}
    assert clients_in(cut) == 5
    assert cut_to(whole, 10) == whole


def test_a_cohort_is_never_larger_than_what_is_left():
    training = Training(rounds=exactly(1), clients_per_round=8, least_clients=6)

    cut = cut_to(scenario(training=training), 4).training

    assert (cut.clients_per_round, cut.least_clients) == (4, 4)


def test_what_is_cut_is_said():
    training = Training(rounds=exactly(1), clients_per_round=8, least_clients=3)
    whole = scenario(training=training)

    assert list(cuts(whole, cut_to(whole, 2))) == [
        "2 of 10 clients take part, one for each node",
        "a cohort is 2 clients, where the scenario says 8",
        "2 have to return at least, where the scenario says 3",
    ]
    assert list(cuts(whole, cut_to(whole, 8))) == ["8 of 10 clients take part, one for each node"]
    assert list(cuts(whole, whole)) == []


def test_more_nodes_than_clients_are_refused():
    with pytest.raises(InvalidInput, match="10 clients, so 11 nodes are too many"):
        cut_to(scenario(), 11)


def test_a_scenario_is_the_same_after_it_travelled_in_an_app(tmp_path):
    training = Training(
        rounds=exactly(3),
        clients_per_round=2,
        algorithm=Algorithm.SCAFFOLD,
        codec_up=Codec(kind="top-k", keep_ratio=0.1, has_feedback=True),
    )
    given = AppSettings(
        run="r", scenario=replace(scenario(), training=training), rounds=3, folder="/f", task="digits"
    )

    write_settings(tmp_path / "federated.json", given)

    assert read_settings(tmp_path / "federated.json") == given
    (tmp_path / "federated.json").write_text("{}")
    with pytest.raises(InvalidInput, match="does not describe a federated app"):
        read_settings(tmp_path / "federated.json")
