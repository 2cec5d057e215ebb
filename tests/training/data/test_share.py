import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.training.data.share import Share


@given(st.integers(1, 64), st.integers(1, 16), st.integers(0, 10**12))
def test_the_ranks_together_take_the_global_batch_in_order(ranks: int, each: int, cursor: int):
    shares = [Share(global_batch=ranks * each, rank=rank, ranks=ranks) for rank in range(ranks)]

    taken = [share.first(cursor) + place for share in shares for place in range(share.samples)]

    assert taken == list(range(cursor, cursor + ranks * each))


def test_rank_2_of_4_takes_the_third_quarter():
    # 32 samples from 1,000 on: 8 a rank, rank 2 begins 16 behind
    assert Share(global_batch=32, rank=2, ranks=4).first(1000) == 1016


@pytest.mark.parametrize(
    ("global_batch", "rank", "ranks", "hint"),
    [(10, 0, 4, "choose a multiple of 4"), (8, 4, 4, "rank 4 is none of 4"), (0, 0, 1, "multiple of 1")],
)
def test_what_cannot_be_dealt_is_refused(global_batch: int, rank: int, ranks: int, hint: str):
    with pytest.raises(InvalidInput, match=hint):
        Share(global_batch=global_batch, rank=rank, ranks=ranks)
