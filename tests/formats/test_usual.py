"""What a plan is made with of a timed call: the typical seconds, which older files hold as the median."""

from escala.formats.bench_record import Timed
from escala.measurement.bench.samples import Subject, timed


def test_a_new_record_is_used_by_its_mean_near_the_best():
    # best 1 s; 9 s is over three times that and was disturbed: (1 + 2 + 3) / 3 = 2 s, 8 bytes / 2 s
    made = timed(Subject(part="memory", name="copy", payload_bytes=8.0), [1.0, 2.0, 3.0, 9.0], 0, 1.0)

    assert (made.best_s, made.typical_s, made.usual_s, made.usual_bytes_per_s) == (1.0, 2.0, 2.0, 4.0)


def test_an_older_record_is_used_by_its_median():
    made = Timed(part="gemm", name="a", best_s=1.0, median_s=1.5, repeats=3, samples_s=(1.0, 1.5, 4.0))

    assert (made.usual_s, made.usual_bytes_per_s) == (1.5, None)
