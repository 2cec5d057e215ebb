"""Who has which samples: as many as asked, each once, mixed as asked, the same for the same seed."""

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.partition import exact, mixes, whole
from escala.federated.scenario import Skew
from federated.populations import clients, plain_task

TEN = np.repeat(np.arange(10), 100)
SKEWS = [
    clients(20, 50),
    clients(20, 50, Skew.DIRICHLET, concentration=0.5),
    clients(20, 50, Skew.BY_LABEL, labels=2),
]


@pytest.mark.parametrize("population", SKEWS, ids=lambda each: each.data.skew.value)
def test_exact_gives_every_client_its_samples_and_whole_gives_every_sample_to_one(population):
    task = plain_task(TEN)

    dealt, shared = exact(task, [population], seed=1), whole(task, [population], seed=1)

    assert [len(rows) for rows in dealt] == [50] * 20
    assert sorted(np.concatenate(shared)) == list(range(1000))
    assert len(shared) == 20


@pytest.mark.parametrize("deal", [exact, whole])
def test_the_seed_alone_decides(deal):
    task, population = plain_task(TEN), SKEWS[1]

    first, again, other = (deal(task, [population], seed=seed) for seed in (1, 1, 2))

    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_no_sample_is_dealt_twice_before_all_of_its_label_were_dealt():
    # 10 labels of 100; 2 labels a client, 50 samples: each label is held by 4 clients, 25 samples of it each
    rows = np.concatenate(exact(plain_task(TEN), [SKEWS[2]], seed=3))

    assert sorted(rows) == list(range(1000))


def test_by_label_gives_so_many_labels_and_covers_all_evenly():
    task = plain_task(TEN)

    for rows in (exact(task, [SKEWS[2]], seed=0), whole(task, [SKEWS[2]], seed=0)):
        held = mixes(task, rows).counts > 0
        assert list(held.sum(axis=1)) == [2] * 20
        assert list(held.sum(axis=0)) == [4] * 10


def test_distance_from_everybody_by_hand():
    # two clients with one label each: shares (1, 0) and (0, 1) against (1/2, 1/2): half of 1/2 + 1/2
    task = plain_task(np.array([0, 0, 1, 1]))

    found = mixes(task, (np.array([0, 1]), np.array([2, 3])))

    assert found.counts.tolist() == [[2, 0], [0, 2]]
    assert found.distance.tolist() == [0.5, 0.5]


def test_smaller_concentration_is_farther_from_everybody():
    task = plain_task(TEN)

    def distance(concentration: float) -> float:
        population = clients(50, 40, Skew.DIRICHLET, concentration=concentration)
        return float(mixes(task, exact(task, [population], seed=0)).distance.mean())

    assert distance(0.1) > distance(1.0) > distance(100.0)


def test_classes_of_clients_follow_each_other_and_share_by_their_samples():
    # 5 clients of 20 and 5 of 80: of 1,000 samples the first have 200, the others 800
    task, population = plain_task(TEN), [clients(5, 20), clients(5, 80)]

    assert [len(rows) for rows in exact(task, population, seed=0)] == [20] * 5 + [80] * 5
    shared = [len(rows) for rows in whole(task, population, seed=0)]
    assert sum(shared[:5]) == pytest.approx(200, abs=5)
    assert sum(shared) == 1000


def test_a_client_by_user_has_the_samples_of_one_user():
    task = plain_task(TEN, users=np.arange(1000) % 4)

    rows = exact(task, [clients(3, 1, Skew.BY_USER)], seed=0)

    assert [len(np.unique(task.users[each])) for each in rows] == [1, 1, 1]
    assert [len(each) for each in rows] == [250, 250, 250]
    with pytest.raises(InvalidInput, match="4 users"):
        exact(task, [clients(5, 1, Skew.BY_USER)], seed=0)


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(InvalidInput, match="has no users"):
        exact(plain_task(TEN), [clients(3, 1, Skew.BY_USER)], seed=0)
    with pytest.raises(InvalidInput, match="more than the 10"):
        exact(plain_task(TEN), [clients(3, 5, Skew.BY_LABEL, labels=11)], seed=0)
    with pytest.raises(InvalidInput, match="clients get no sample"):
        whole(plain_task(TEN), [clients(1001, 1)], seed=0)
