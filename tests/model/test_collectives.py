import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.collectives import all_reduce_s, all_to_all_s, fused_exchange_s, gather_s, send_s

GB = 1e9
ONE_GB_PER_S = np.array([1e9])
FOUR_GB = np.array([4e9])
RANKS = np.array([4.0])
NO_LATENCY = np.array([0.0])


def test_all_gather_by_hand():
    # 4 ranks, 4 GB, 1 GB/s, no latency: 3/4 * 4 s = 3 s
    assert gather_s(FOUR_GB, RANKS, ONE_GB_PER_S, NO_LATENCY)[0] == pytest.approx(3.0, rel=1e-12)


def test_all_reduce_by_hand():
    # 4 ranks, 4 GB, 1 GB/s, no latency: 2 * 3/4 * 4 s = 6 s
    assert all_reduce_s(FOUR_GB, RANKS, ONE_GB_PER_S, NO_LATENCY)[0] == pytest.approx(6.0, rel=1e-12)


def test_all_reduce_pays_the_latency_of_both_halves():
    # 6 s + 2 * 0.5 s
    assert all_reduce_s(FOUR_GB, RANKS, ONE_GB_PER_S, np.array([0.5]))[0] == pytest.approx(7.0, rel=1e-12)


def test_all_to_all_inside_one_domain_by_hand():
    # each of 4 ranks keeps a quarter and sends 3 of its 4 GB: 3 s
    inside = np.array([4.0])

    seconds = all_to_all_s(FOUR_GB, RANKS, inside, ONE_GB_PER_S, ONE_GB_PER_S / 10, NO_LATENCY)

    assert seconds[0] == pytest.approx(3.0, rel=1e-12)


def test_all_to_all_over_two_domains_takes_the_slower_wire():
    # 2 of 4 ranks inside: 1 GB stays at 1 GB/s = 1 s, 2 GB leave at 0.1 GB/s = 20 s
    inside = np.array([2.0])

    seconds = all_to_all_s(FOUR_GB, RANKS, inside, ONE_GB_PER_S, ONE_GB_PER_S / 10, NO_LATENCY)

    assert seconds[0] == pytest.approx(20.0, rel=1e-12)


def test_a_fused_dispatcher_sends_a_token_once_to_each_domain():
    # 2 domains of 2 ranks, 2 choices: (2 - 1) (1 - (1/2)^2) = 0.75 copies leave, 40 s each; beside,
    # 2 (2 - 1) (1 - (3/4)^2) = 0.875 copies stay, 4 s each
    inside, four, forty = np.array([2.0]), np.array([4.0]), np.array([40.0])

    assert fused_exchange_s(four, forty, 2, RANKS, inside, NO_LATENCY)[0] == pytest.approx(30.0, rel=1e-12)
    assert fused_exchange_s(four, four / 10, 2, RANKS, inside, NO_LATENCY)[0] == pytest.approx(3.5, rel=1e-12)


def test_a_fused_dispatcher_saves_nothing_where_a_token_has_one_expert():
    inside, copy_s = np.array([4.0]), np.array([4.0])

    plain = all_to_all_s(FOUR_GB, RANKS, inside, ONE_GB_PER_S, ONE_GB_PER_S, NO_LATENCY)
    fused = fused_exchange_s(copy_s, copy_s, 1, RANKS, inside, NO_LATENCY)

    # 3 of 4 GB at 1 GB/s
    assert plain[0] == pytest.approx(3.0, rel=1e-12)
    assert fused[0] == pytest.approx(3.0, rel=1e-12)


def test_send_by_hand():
    # 0.25 s + 4 GB at 1 GB/s
    assert send_s(FOUR_GB, ONE_GB_PER_S, np.array([0.25]))[0] == pytest.approx(4.25, rel=1e-12)


@pytest.mark.parametrize("collective", [gather_s, all_reduce_s])
def test_one_rank_talks_to_nobody(collective):
    assert collective(FOUR_GB, np.array([1.0]), ONE_GB_PER_S, np.array([0.5]))[0] == 0.0


def test_one_rank_exchanges_nothing():
    one = np.array([1.0])

    assert all_to_all_s(FOUR_GB, one, one, ONE_GB_PER_S, ONE_GB_PER_S, np.array([0.5]))[0] == 0.0


@given(
    payload=st.floats(1.0, 1e12),
    ranks=st.integers(2, 100_000),
    speed=st.floats(1e6, 1e13),
    latency=st.floats(0.0, 1e-2),
)
def test_all_reduce_is_two_gathers(payload, ranks, speed, latency):
    columns = (np.array([payload]), np.array([float(ranks)]), np.array([speed]), np.array([latency]))

    assert all_reduce_s(*columns)[0] == pytest.approx(2 * gather_s(*columns)[0], rel=1e-12)


@given(payload=st.floats(1.0, 1e12), ranks=st.integers(2, 100_000), speed=st.floats(1e6, 1e13))
def test_gather_never_takes_longer_than_the_whole_payload(payload, ranks, speed):
    seconds = gather_s(np.array([payload]), np.array([float(ranks)]), np.array([speed]), NO_LATENCY)

    assert seconds[0] <= payload / speed
