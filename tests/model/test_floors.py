from dataclasses import replace

import numpy as np
import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.floors import Floor, Floors, floors, masked_attention_flop
from escala.model.flops import forward_flop
from escala.model.granularity import granularity
from escala.model.plan import Plan, Plans, Schedule
from escala.model.problem import Problem
from escala.model.workload import Batching, Lengths, Workload
from escala.planning.search import search


def question(name: str = "llama-3.2-1b", devices: int = 16, batch: int = 64, tokens: int = 4096) -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=tokens, global_batch=batch),
        cluster=catalog.cluster_for("h100-sxm", devices),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


@pytest.mark.parametrize(
    ("name", "devices", "batch", "tokens"),
    [
        ("llama-3.2-1b", 16, 64, 4096),
        ("mixtral-8x7b", 32, 32, 4096),
        ("resnet-50", 16, 4096, 1),
        ("llama-3.1-8b", 16, 16, 32768),
    ],
)
def test_no_plan_is_faster_than_its_floor(name, devices, batch, tokens):
    problem = question(name, devices, batch, tokens)
    ranking = search(problem, top=60).ranking
    assert ranking is not None

    assert (ranking.step_s >= floors(problem, ranking.plans).floor_s).all()


def test_work_is_shared_by_all_devices():
    problem = question()
    plans = Plans.of(
        [Plan(dp=16, micro_batches=4), Plan(dp=8, micro_batches=8), Plan(dp=4, tp=2, micro_batches=16)]
    )

    work_s = floors(problem, plans).work_s

    assert work_s == pytest.approx(work_s[0] * np.array([1.0, 2.0, 2.0]), rel=1e-12)


def test_work_bound_by_hand(ideal, llama):
    # round chip, 1e14 FLOP/s reached in full: 3 x forward products, head and masked attention
    problem = ideal(llama(), sequence=1024, batch=8)
    products, _, head = forward_flop(problem.workload.network, 1024)
    flop = (3.0 * (products + head) + masked_attention_flop(problem)) * 8

    found = floors(problem, Plans.of(Plan(micro_batches=8)))

    assert found.work_s[0] == pytest.approx(flop / 1e14, rel=1e-12)


def test_a_device_alone_sends_nothing():
    problem = question(devices=1, batch=4)
    alone = Plans.of(Plan(micro_batches=4))

    assert floors(problem, alone).link_s[0] == 0.0
    assert np.isnan(
        [
            getattr(granularity(problem, alone), name)[0]
            for name in ("bucket_ratio", "layer_ratio", "stage_ratio")
        ]
    ).all()


def test_the_chain_is_one_sample_long_whatever_the_batch():
    problem = question()
    few, many = (Plans.of(Plan(dp=16, micro_batch=size, micro_batches=4 // size)) for size in (1, 4))

    assert floors(problem, few).chain_s[0] == pytest.approx(floors(problem, many).chain_s[0], rel=1e-12)


def test_the_highest_floor_has_a_name_and_a_gap():
    # floors of 1, 3 and 2 s: the chain is highest, a step of 6 s is 100 % above
    found = Floors(work_s=np.array([1.0]), chain_s=np.array([3.0]), link_s=np.array([2.0]))

    assert Floor(int(found.highest[0])) is Floor.CHAIN
    assert found.gap(np.array([6.0]))[0] == 1.0


def test_a_wider_link_makes_coarser_grains():
    problem = question()
    wide = replace(
        problem,
        cluster=replace(
            problem.cluster,
            links=tuple(
                replace(each, bytes_per_s=2 * each.bytes_per_s, latency_s=0.5 * each.latency_s)
                for each in problem.cluster.links
            ),
        ),
    )
    plans = Plans.of(Plan(dp=16, micro_batches=4))

    # twice the bandwidth at half the latency: half the seconds of every message
    one, two = granularity(problem, plans), granularity(wide, plans)
    assert two.bucket_ratio[0] == pytest.approx(2 * one.bucket_ratio[0], rel=1e-9)


def test_each_kind_of_plan_has_its_own_grains():
    problem = question()
    plans = Plans.of(
        [
            Plan(dp=16, micro_batches=4),
            Plan(dp=16, zero=3, reshard=True, shard=16, micro_batches=4),
            Plan(dp=8, pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=8),
        ]
    )
    assert (estimate(problem, plans).step_s > 0).all()

    found = granularity(problem, plans)

    assert list(np.isfinite(found.bucket_ratio)) == [True, False, True]
    assert list(np.isfinite(found.layer_ratio)) == [False, True, False]
    assert list(np.isfinite(found.stage_ratio)) == [False, False, True]


@pytest.mark.parametrize("batching", Batching)
def test_samples_of_unequal_length_have_a_floor_below_their_step(batching):
    given = () if batching is Batching.FULL else (128.0, 512.0, 4096.0)
    problem = question(devices=8)
    lengths = Lengths(quantile_tokens=given, batching=batching)
    uneven = replace(problem, workload=replace(problem.workload, lengths=lengths))
    plans = Plans.of([Plan(dp=8, micro_batch=size, micro_batches=8 // size) for size in (1, 2, 8)])

    assert (estimate(uneven, plans).step_s > floors(uneven, plans).floor_s).all()
