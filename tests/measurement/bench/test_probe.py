from escala.measurement.bench.probe import Probe
from escala.measurement.bench.ranks import Ranks
from escala.measurement.bench.samples import Subject


def probe(smaller: Probe | None = None, cost_s: float = 0.0) -> Probe:
    """A message four times as large as the smaller one; a call may take a second."""
    subject = Subject(part="network", name="x")
    return Probe(
        subjects=(subject,),
        make=lambda _: lambda: (0.0,),
        smaller=smaller,
        growth=4.0,
        most_s=1.0,
        cost_s=cost_s,
    )


def test_a_message_that_would_take_too_long_is_not_sent():
    # 0.2 s and 0.3 s for a quarter of the bytes: 0.8 s may be tried, 1.2 s not, nor anything larger
    assert not probe(probe(cost_s=0.2)).is_dear
    assert probe(probe(cost_s=0.3)).is_dear
    assert probe(probe(probe(cost_s=0.3))).is_dear
    assert probe(probe(cost_s=0.3)).round(Ranks()) == []


def test_the_smallest_message_is_always_tried():
    assert not probe().is_dear


def test_a_slow_first_message_is_sent_again():
    seconds = iter([2.0, 0.01, 0.01, 0.01])
    first = Probe(
        subjects=(Subject(part="network", name="x"),),
        make=lambda _: lambda: (next(seconds),),
        is_joint=True,
        slice_s=0.0,
        growth=4.0,
        most_s=1.0,
    )
    first.round(Ranks())
    next_one = probe(first)

    # the second call took 10 ms, so that four times the bytes are expected to take 40, not 8 s
    assert next_one.expected_s == 0.04
    assert not next_one.is_dear


def calls_of(ranks: Ranks, *, is_joint: bool) -> int:
    """How many calls of 5 ms make one sample."""
    one = Probe(
        subjects=(Subject(part="gemm", name="x"),),
        make=lambda _: lambda: (5e-3,),
        is_joint=is_joint,
        slice_s=0.0,
    )
    one.round(ranks)
    return one.calls


class Agreeing(Ranks):
    """Ranks that agree on everything."""

    def most(self, value: float) -> float:
        return value


def test_computation_beside_other_ranks_is_timed_over_their_turns():
    # 50 ms of calls of 5 ms; alone, or with messages, one call is a sample
    assert calls_of(Agreeing(size=2), is_joint=False) == 10
    assert calls_of(Agreeing(size=2), is_joint=True) == 1
    assert calls_of(Ranks(), is_joint=False) == 1
