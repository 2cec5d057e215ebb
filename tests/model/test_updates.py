"""Update rules that see whole matrices: what they keep, compute and send, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from escala.catalog.networks import names, network
from escala.model.estimate import estimate
from escala.model.network import Convolution
from escala.model.orthogonal import orthogonal_s
from escala.model.parameters import block_parameters, network_parameters
from escala.model.plan import OptimizerStep, Plan, Plans
from escala.model.updates import Matrix, matrices
from escala.model.workload import Adapter, Method, Optimizer, OptimizerKind

MUON = Optimizer(kind=OptimizerKind.MUON, moments=1)
ADAFACTOR = Optimizer(kind=OptimizerKind.ADAFACTOR, moments=0)
H, KV, F, V, LAYERS = 2048, 512, 5632, 32000, 4
"""The network of the fixture `llama`."""
IN_LAYERS = LAYERS * (2 * H * H + 2 * H * KV + 3 * H * F)
SIDES = LAYERS * (2 * (H + H) + 2 * (H + KV) + 3 * (H + F)) + 2 * (V + H)
VECTORS = (2 * LAYERS + 1) * H


def updating(problem, optimizer: Optimizer, **more):
    return replace(problem, workload=replace(problem.workload, optimizer=optimizer, **more))


def kinds(problem, plan: Plan):
    return estimate(problem, Plans.of(plan)).memory.kinds


def computing(problem):
    """Memory is endlessly fast."""
    group = problem.cluster.groups[0]
    other = replace(group, accelerator=replace(group.accelerator, memory_bytes_per_s=1e30))
    return replace(problem, cluster=replace(problem.cluster, groups=(other,)))


def seconds(problem, plan: Plan) -> float:
    return float(estimate(problem, Plans.of(plan)).time.optimizer_s[0])


def test_matrices_and_vectors_are_all_weights_of_a_layer():
    for stack in (stack for name in names() for stack in network(name).stacks):
        for block in stack.blocks:
            if any(isinstance(part, Convolution) for part in block.parts):
                continue
            total = block_parameters(block, stack.hidden).total
            flat = total - sum(each.elements for each in matrices(block, stack.hidden))

            assert 0 <= flat <= 0.02 * total  # norms and biases


def test_muon_keeps_one_moment_of_matrices_and_two_of_the_rest(ideal, llama):
    problem = updating(ideal(llama()), MUON)
    total = network_parameters(problem.workload.network).total

    assert total == IN_LAYERS + 2 * V * H + VECTORS
    assert kinds(problem, Plan()).optimizer_bytes[0] == 4 * IN_LAYERS + 8 * (2 * V * H + VECTORS)


def test_adafactor_keeps_rows_and_columns_of_matrices_and_all_of_vectors(ideal, llama):
    problem = updating(ideal(llama()), ADAFACTOR)
    first = updating(ideal(llama()), replace(ADAFACTOR, moments=1))
    total = network_parameters(problem.workload.network).total

    assert kinds(problem, Plan()).optimizer_bytes[0] == 4 * (SIDES + VECTORS)
    assert kinds(first, Plan()).optimizer_bytes[0] == 4 * (SIDES + VECTORS) + 4 * total


def test_shards_share_moments_but_not_the_sides_of_a_matrix(ideal, llama):
    plan = Plan(dp=8, zero=3, shard=8, reshard=True)
    muon, factored = (updating(ideal(llama(), devices=8, batch=8), each) for each in (MUON, ADAFACTOR))

    assert kinds(muon, plan).optimizer_bytes[0] == (4 * IN_LAYERS + 8 * (2 * V * H + VECTORS)) / 8
    assert kinds(factored, plan).optimizer_bytes[0] == pytest.approx(4 * (SIDES + VECTORS / 8))


def test_eight_bit_states_have_a_scale_for_each_block_of_256():
    # 1 byte + 4 / 256 each, two of them
    from escala.planning.defaults import OPTIMIZERS

    assert 2 * OPTIMIZERS["adamw-8bit"].state_bytes == 2 + 8 / 256


def test_newton_schulz_by_hand():
    # 5 x (X Xᵀ 2 m² n, squared 2 m³, times X 2 m² n) with m = 2, n = 8
    assert Matrix(rows=8, columns=2).flop == 5 * (2 * 4 * 8 + 2 * 8 + 2 * 4 * 8)


def test_muon_multiplies_fifteen_times_at_the_peak(ideal, llama):
    problem = computing(updating(ideal(llama()), MUON))
    plans = Plans.of(Plan())
    flop = LAYERS * sum(
        each.flop * each.count for each in matrices(problem.workload.network.main.blocks[0], H)
    )

    assert orthogonal_s(problem, plans, np.array([[LAYERS]])) == pytest.approx(flop / 1e14)


def test_owners_share_the_products_and_gathering_ranks_repeat_them(ideal, llama):
    counts = np.array([[LAYERS]])
    plans = Plans.of(Plan(dp=8, zero=3, shard=8, reshard=True))
    owned = updating(ideal(llama(), devices=8, batch=8), MUON)
    gathered = updating(owned, replace(MUON, owns_matrices=False))
    alone = orthogonal_s(owned, Plans.of(Plan()), counts)

    assert orthogonal_s(gathered, plans, counts) == pytest.approx(alone)
    assert orthogonal_s(owned, plans, counts) == pytest.approx(alone / 8)


def test_owners_send_an_eighth_of_what_gathering_ranks_receive(ideal, llama):
    # 7/8 of all matrices in bf16, against 7/8 of an eighth there and back
    plan = Plan(dp=8, zero=3, shard=8, reshard=True)
    owned = updating(ideal(llama(), devices=8, batch=8), MUON)
    gathered = updating(owned, replace(MUON, owns_matrices=False))
    counts = np.array([[LAYERS]])
    products = [float(orthogonal_s(each, Plans.of(plan), counts)[0]) for each in (owned, gathered)]

    more = seconds(gathered, plan) - products[1] - (seconds(owned, plan) - products[0])

    assert more == pytest.approx(2 * IN_LAYERS * 7 / 8 / 100e9 * (1 - 2 / 8))


def test_a_matrix_is_whole_at_its_owner_while_the_step_runs(ideal, llama):
    # X, its next value, Gram matrix and its square of the largest, 2 bytes each
    problem = updating(ideal(llama()), MUON)

    assert kinds(problem, Plan()).step_bytes[0] == 2 * 4 * H * F


def test_a_step_inside_backward_has_the_gradients_of_one_layer(ideal, llama):
    problem = ideal(llama(ends=False))
    layer = block_parameters(problem.workload.network.main.blocks[0], H).total

    whole, early = (
        kinds(problem, Plan(optimizer_step=step)) for step in (OptimizerStep.WHOLE, OptimizerStep.IN_BACKWARD)
    )

    assert whole.gradients_bytes[0] == 4 * LAYERS * layer
    assert early.gradients_bytes[0] == pytest.approx(4 * layer)


def test_a_tiled_step_has_the_temporaries_of_a_tile(ideal, llama):
    problem = ideal(llama())
    eager = replace(problem.engine, memory=replace(problem.engine.memory, step_bytes=4.0))

    tiled = kinds(replace(problem, engine=eager), Plan(optimizer_step=OptimizerStep.TILED))

    assert tiled.step_bytes[0] == 4 * 1.8e6


def test_adapters_in_series_are_the_weights_that_are_trained(ideal, llama):
    # down and up with their biases, twice in a layer; fp32 weight and gradient, two moments
    problem = updating(ideal(llama()), Optimizer(), method=Method.ADAPTER, adapter=Adapter(width=64))
    trained = LAYERS * 2 * (2 * H * 64 + 64 + H)
    frozen = network_parameters(problem.workload.network).total

    found = kinds(problem, Plan())

    assert found.weights_bytes[0] == 2 * frozen + 4 * trained
    assert found.gradients_bytes[0] == 4 * trained
    assert found.optimizer_bytes[0] == 8 * trained


def test_adapters_in_series_cost_their_products_forward_and_twice_backward(ideal, llama):
    adapted, wider = (
        computing(updating(ideal(llama()), Optimizer(), method=Method.ADAPTER, adapter=Adapter(width=width)))
        for width in (64, 128)
    )
    one, other = (estimate(each, Plans.of(Plan())).time.matmul_s[0] for each in (adapted, wider))

    # two products of 2 x 1,024 tokens x h x 64 more in each of two adapters a layer
    assert other - one == pytest.approx(3 * LAYERS * 2 * 2 * 2 * 1024 * H * 64 / 1e14, rel=1e-6)
