"""A network of traced numbers: its formulas by hand, and beside a described one of the same products."""

from dataclasses import replace

import numpy as np
import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.errors import InvalidInput
from escala.formats.networks import find_network
from escala.formats.traced_json import write_traced
from escala.model.estimate import estimate, kept_layers
from escala.model.flops import model_flop
from escala.model.layers import compute
from escala.model.matmuls import Shape, layer_work
from escala.model.network import Block, Convolution, Linear, Network, Stack, StackRole
from escala.model.parameters import network_parameters
from escala.model.plan import Compile, Plan, Plans, Precision, Recompute
from escala.model.problem import Problem
from escala.model.rejects import Reject
from escala.model.traces import Attended, Footprint, Grows, Product, Traced
from escala.model.workload import Workload
from escala.planning.search import search

MAP = Traced(
    parameters=1000,
    tensors=2,
    launches=35,
    products=(Product(rows=16.0, inner=64.0, outer=256.0),),
    fp32=Footprint(
        kept_bytes=800.0, kept_once_bytes=50.0, given_bytes=80.0, widest_bytes=200.0, moved_bytes=4e6
    ),
    bf16=Footprint(kept_bytes=400.0, given_bytes=40.0, widest_bytes=100.0, moved_bytes=2e6),
)
REST = replace(MAP, parameters=500, products=(Product(rows=1.0, inner=10.0, outer=10.0),), launches=7)


def network(part: Traced | Linear | Convolution = MAP, layers: int = 4) -> Network:
    outside = Block(name="outside", parts=(REST,), norms=0) if isinstance(part, Traced) else None
    role = StackRole.MODULE if isinstance(part, Traced) else StackRole.VISION
    block = Block(name="map", parts=(part,), norms=0)
    stack = Stack(
        role=role,
        hidden=64,
        blocks=(block,),
        pattern=(0,) * layers,
        tokens=16,
        final_norm_weights=0,
        outside=outside,
    )
    return Network(name="own", family="module", stacks=(stack,))


def problem(net: Network, batch: int = 64, devices: int = 8) -> Problem:
    return Problem(
        workload=Workload(network=net, sequence_tokens=1, global_batch=batch),
        cluster=cluster_for("h100-sxm", devices),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )


def test_work_and_parameters_are_those_of_the_blocks_and_of_what_is_outside():
    # 4 * 2 * 16 * 64 * 256 + 2 * 10 * 10 FLOP a sample, 3 times that in a step, for 64 samples
    assert model_flop(problem(network()).workload) == 3 * 64 * (4 * 524_288 + 200)
    assert network_parameters(network()).total == 4 * 1000 + 500


def test_a_traced_product_takes_as_long_as_the_same_product_of_a_described_layer():
    plans = Plans.of(Plan(micro_batch=4))
    linear = network(Linear(inputs=64, outputs=256))

    own, other = (compute(problem(net), plans, net.main, net.main.blocks[0]) for net in (network(), linear))

    np.testing.assert_array_equal(own.matmul_forward_s, other.matmul_forward_s)
    np.testing.assert_array_equal(own.matmul_backward_s, other.matmul_backward_s)


def test_a_traced_convolution_takes_as_long_as_the_same_one_of_a_described_layer():
    plans = Plans.of([Plan(micro_batch=4), Plan(micro_batch=4, precision=Precision.FP32)])
    seen = replace(MAP, products=(Product(rows=49.0, inner=72.0, outer=32.0, channels=16, groups=2),))
    told = network(Convolution(inputs=16, outputs=32, kernel=3, groups=2, output_pixels=49))

    own, other = (compute(problem(net), plans, net.main, net.main.blocks[0]) for net in (network(seen), told))

    np.testing.assert_array_equal(own.matmul_forward_s, other.matmul_forward_s)


def test_what_grows_in_number_and_what_does_not_grow_are_told_apart():
    block = network(
        replace(
            MAP,
            products=(
                Product(rows=8.0, inner=4.0, outer=8.0, count=2.0, launches=3, grows=Grows.COUNT),
                Product(rows=5.0, inner=4.0, outer=6.0, grows=Grows.NOTHING),
            ),
            attended=(Attended(queries=10, keys=20, heads=2, head_dim=8, value_head_dim=8),),
        )
    ).main
    work = layer_work(block.blocks[0], block, Shape.of(Plans.of(Plan(micro_batch=5)), 1))

    # three launches of 2 * 5 products, one that has no samples in it, 5 samples of attention
    assert [float(each.flop[0]) for each in work.matmuls] == [2 * 8 * 4 * 8 * 10] * 3 + [2 * 5 * 4 * 6]
    assert float(work.cores[0].flop[0]) == 2 * 5 * 10 * 2 * 20 * 16


def test_kept_bytes_are_those_of_the_format_that_a_plan_runs_in():
    plans = Plans.of(
        [
            Plan(dp=8, micro_batch=4, precision=Precision.FP32),
            Plan(dp=8, micro_batch=4, zero=3, shard=8, reshard=True),
        ]
    )

    kept = kept_layers(problem(network()), plans)[0]

    assert kept.whole_bytes.tolist() == [4 * 800 + 50, 4 * 400]
    assert kept.checkpoint_bytes.tolist() == [4 * 80, 4 * 40]
    assert kept.working_bytes.tolist() == [4 * 800 + 50 + 2 * 4 * 280, 4 * 400 + 2 * 4 * 140]


def test_plans_that_split_a_traced_module_or_run_it_otherwise_than_it_ran_are_refused():
    fits = Plan(dp=8, micro_batch=8, zero=3, shard=8, reshard=True)
    others = [
        replace(fits, dp=4, shard=4, tp=2, micro_batch=16),
        replace(fits, compile=Compile.DEFAULT),
        replace(fits, recompute=Recompute.SELECTIVE),
    ]

    bits = estimate(
        problem(network()), Plans.of([fits, replace(fits, recompute=Recompute.FULL), *others])
    ).reject

    assert bits[:2].tolist() == [0, 0]
    assert all(each & int(Reject.TRACED) for each in bits[2:])


def test_a_format_that_the_module_did_not_run_in_is_refused():
    # bf16 without sharding runs under autocast, which was not seen
    plans = Plans.of([Plan(dp=8, micro_batch=8), Plan(dp=8, micro_batch=8, precision=Precision.FP32)])

    assert estimate(problem(network()), plans).reject.tolist() == [int(Reject.TRACED_FORMAT), 0]


def test_the_search_offers_data_parallel_and_sharded_plans_alone():
    found = search(problem(network()), top=20)

    assert found.ranking is not None
    plans = [found.ranking.plans[row] for row in range(len(found.ranking))]
    assert {plan.zero for plan in plans} == {3}  # the other stages run under autocast
    assert {(plan.tp, plan.pp, plan.cp, plan.ep, plan.compile) for plan in plans} == {
        (1, 1, 1, 1, Compile.OFF)
    }


def test_a_written_network_is_read_again(tmp_path):
    net = network(
        replace(MAP, attended=(Attended(queries=4, keys=4, heads=1, head_dim=8, value_head_dim=8),))
    )

    write_traced(net, tmp_path / "own.json")

    assert find_network(str(tmp_path / "own.json")) == net


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"escala/traced-network@1"', '"escala/traced-network@9"', "this version reads"),
        ('"module"', '"vision"', "was not traced"),
        ('"parameters": 1000', '"parameters": -1', "finite and not negative"),
        ('"grows": "rows"', '"grows": "up"', "grows"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, before: str, after: str, said: str):
    file = tmp_path / "own.json"
    write_traced(network(), file)
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))

    with pytest.raises(InvalidInput, match=said):
        find_network(str(file))
