"""Which part of a step a gap lies in."""

from escala.measurement.cause import FASTER, LATE, SLOWER, UNKNOWN, cause_of
from escala.measurement.profile.predicted import COMMUNICATION, COMPUTE, NOT_MODELLED, PARTS
from escala.measurement.profile.record import Beside, Prediction
from escala.measurement.sampling.others import OtherWork

IDLE = OtherWork(busy_cores=0.02, cores=2)


def told(parts: dict[str, tuple[float, float | None]]) -> Prediction:
    """A prediction of parts: predicted and measured seconds."""
    return Prediction(
        plan_title="plan",
        network="network",
        step_s=1.0,
        low_s=0.9,
        high_s=1.1,
        error=0.0,
        axes=(),
        parts=tuple(
            Beside(part=name, predicted_s=predicted_s, measured_s=measured_s, error=None, terms=())
            for name, (predicted_s, measured_s) in parts.items()
        ),
    )


def test_the_part_with_most_seconds_between_is_named_whatever_its_share():
    # compute 10 % of 10 s off, communication 100 % of 0.5 s: compute
    found = cause_of(told({COMPUTE: (10.0, 11.0), COMMUNICATION: (0.5, 1.0)}), 12.0, others=IDLE)

    assert found is not None
    assert (found.part, found.gap_s, found.share) == (COMPUTE, 1.0, 1.0 / 12.0)
    assert found.likely == SLOWER[COMPUTE]


def test_too_much_predicted_is_a_gap_below_zero():
    found = cause_of(told({COMMUNICATION: (3.0, 1.0)}), 4.0)

    assert found is not None
    assert (found.gap_s, found.share, found.likely) == (-2.0, -0.5, FASTER[COMMUNICATION])


def test_parts_that_no_trace_shows_are_no_cause():
    assert cause_of(told({COMPUTE: (1.0, None)}), 1.0) is None


def test_idle_time_beside_a_busy_machine_is_not_blamed_on_storage():
    # a gap of 0.4 of the step's second, and 0.5 of 2 cores busy with others: 0.25 is more than half of 0.4
    found = cause_of(told({NOT_MODELLED: (0.0, 0.4)}), 1.0, others=OtherWork(busy_cores=0.5, cores=2))

    assert found is not None
    assert found.likely.startswith("other processes, which kept 0.5 of 2 cores busy meanwhile")


def test_idle_time_on_a_quiet_machine_is_of_data_only_where_the_step_waited_for_them():
    parts = told({NOT_MODELLED: (0.0, 0.4)})
    late, idle = (cause_of(parts, 1.0, data_s=data_s, others=IDLE) for data_s in (0.3, 0.1))

    assert late is not None
    assert idle is not None
    assert late.likely == LATE
    assert idle.likely == SLOWER[NOT_MODELLED]
    assert "storage" not in idle.likely


def test_without_samples_of_the_machine_it_is_said_that_nobody_can_tell():
    found = cause_of(told({NOT_MODELLED: (0.0, 0.4)}), 1.0)

    assert found is not None
    assert found.likely == SLOWER[NOT_MODELLED] + UNKNOWN


def test_every_part_of_a_step_has_words():
    assert set(SLOWER) == set(FASTER) == set(PARTS)
