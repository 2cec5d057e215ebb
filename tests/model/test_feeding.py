import numpy as np

from escala.model.feeding import fed_s, with_loader_s


def test_a_loader_feeds_by_node():
    # 1,200 samples of 100 a second on each of 4 nodes: 3 s
    assert fed_s(1200.0, 100.0, 4.0) == 3.0


def test_the_slower_of_loader_and_step_decides():
    assert list(with_loader_s(np.array([1.0, 5.0]), np.array([3.0, 3.0]))) == [3.0, 5.0]
