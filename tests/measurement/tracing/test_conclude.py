from escala.measurement.tracing.conclude import conclude
from escala.measurement.tracing.jobs import Chunk, Collective, Job, Moment, Traced, Turn
from escala.measurement.tracing.ranks import TracedRank
from escala.model.plan import Plan

ONE = Plan(micro_batches=5)


def job(layers: int, micro_batches: int = 3) -> Job:
    turns = (Turn(kind=kind, chunk=0, micro_batch=each) for each in range(micro_batches) for kind in "FB")
    return Job(
        keys={},
        chunks=(Chunk(first_layer=0, layers=layers, has_embedding=True, has_head=True),),
        turns=tuple(turns),
        shard=1,
        replicas=1,
        tensor=1,
        is_sharded=False,
        reshard=False,
        shares_optimizer=False,
        splits_sequence=False,
        waits=False,
        precision="fp32",
        recomputed_layers=0,
        is_selective=False,
        micro_batch=1,
        sequence_tokens=8,
    )


def traced(layers: int) -> Traced:
    """10 bytes, 4 a layer, and 100 for each layer before the one at work; a gather of 6 bytes a layer."""
    moments = [
        Moment(
            kind="forward", chunk=0, place=str(at), held_bytes={"activations": 10.0 + 4 * layers + 100 * at}
        )
        for at in range(layers)
    ]
    gathers = [
        Collective(
            operation="all-gather",
            axis="sharding",
            micro_batch=each,
            count=layers,
            payload_bytes=6.0 * layers,
        )
        for each in (0, 1, 2)
    ]
    step = Collective(operation="all-reduce", axis="tensor", micro_batch=None, count=1, payload_bytes=4.0)
    return Traced(
        moments=tuple(moments), collectives=(*gathers, step), flop={0: 7.0 * layers, 1: 7.0 * layers, 2: 7.0}
    )


def deep(layers: int) -> TracedRank:
    return TracedRank(rank=0, alike=1, layers=layers, jobs=(job(3), job(4)))


def test_ten_layers_follow_from_three_and_four() -> None:
    found = conclude(ONE, deep(10), [traced(3), traced(4)])

    # the last of ten layers: 10 + 4 * 10 + 100 * 9 bytes
    assert found.peak.place == "9"
    assert found.peak.total_bytes == 10 + 4 * 10 + 100 * 9
    assert {each.place: each.total_bytes for each in found.moments} == {
        "0": 50.0,
        "1": 150.0,
        "8": 850.0,
        "9": 950.0,
    }


def test_traffic_and_flop_grow_with_layers_and_micro_batches() -> None:
    found = conclude(ONE, deep(10), [traced(3), traced(4)])

    # 5 micro-batches, 3 traced, the second stands for 3: 5 gathers of 10 layers; the step has one all-reduce
    sent = {
        (each.operation, each.micro_batch): (each.count, each.payload_bytes) for each in found.collectives
    }
    assert sent["all-gather", 0] == sent["all-gather", 2] == (10, 60)
    assert sent["all-gather", 1] == (30, 180)
    assert sent["all-reduce", None] == (1, 4)
    assert found.flop == 70 + 3 * 70 + 7


def test_a_rank_that_is_traced_whole_is_taken_as_it_is() -> None:
    rank = TracedRank(rank=2, alike=3, layers=4, jobs=(job(4),))

    found = conclude(ONE, rank, [traced(4)])

    assert (found.rank, found.alike) == (2, 3)
    assert found.moments == traced(4).moments
