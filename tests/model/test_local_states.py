"""What a replica that trains alone keeps besides its states."""

from dataclasses import replace

import pytest

from escala.model.estimate import estimate
from escala.model.parameters import network_parameters
from escala.model.plan import Plan, Plans


def test_local_steps_keep_agreed_weights_and_an_outer_momentum(ideal, llama):
    problem = ideal(llama(), devices=8, batch=8)

    kinds = estimate(problem, Plans.of([Plan(dp=8), Plan(dp=8, local_steps=20)])).memory.kinds

    more = kinds.optimizer_bytes[1] - kinds.optimizer_bytes[0]
    assert more == pytest.approx(8 * network_parameters(problem.workload.network).total)


def test_a_sharded_replica_keeps_them_of_its_shard(ideal, llama):
    problem = ideal(llama(), devices=8, batch=8)
    plans = [Plan(dp=8, zero=3, shard=4), Plan(dp=8, zero=3, shard=4, local_steps=20)]

    kinds = estimate(problem, Plans.of(plans)).memory.kinds

    more = kinds.optimizer_bytes[1] - kinds.optimizer_bytes[0]
    assert more == pytest.approx(8 * network_parameters(problem.workload.network).total / 4)


def test_a_fragment_that_travels_is_held_once_more(ideal, llama):
    problem = ideal(llama(), devices=8, batch=8)
    plain = Plan(dp=8, local_steps=20, local_fragments=4)
    plans = [plain, replace(plain, local_overlap_steps=2)]

    kinds = estimate(problem, Plans.of(plans)).memory.kinds

    # 4 bytes of a quarter of the weights
    more = kinds.optimizer_bytes[1] - kinds.optimizer_bytes[0]
    assert more == pytest.approx(network_parameters(problem.workload.network).total)
