import numpy as np

from escala.measurement.profile.nesting import innermost


def self_s(*events: tuple[int, float, float]) -> list[float]:
    lane, start_s, end_s = (np.array(column) for column in zip(*events, strict=True))
    return innermost(lane, start_s.astype(float), end_s.astype(float)).self_s(len(events)).tolist()


def test_an_operation_does_itself_what_its_children_do_not():
    # 0 to 10 holds 2 to 5, which holds 3 to 4, and 7 to 9: 10 - 3 - 2 = 5, 3 - 1 = 2
    assert self_s((0, 0, 10), (0, 2, 5), (0, 3, 4), (0, 7, 9)) == [5, 2, 1, 2]


def test_lanes_do_not_hold_each_other():
    assert self_s((0, 0, 10), (1, 2, 5)) == [10, 3]


def test_a_child_of_the_same_moments_takes_them_all():
    assert self_s((0, 0, 4), (0, 0, 4), (0, 4, 5)) == [0, 4, 1]


def test_an_event_without_length_takes_nothing():
    assert self_s((0, 0, 4), (0, 2, 2)) == [4, 0]
