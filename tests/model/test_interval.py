"""Regimes by what limits a prediction, and the factor of its interval by what is known."""

from dataclasses import replace

import numpy as np
import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.interval import (
    LONG_TOKENS,
    SLOW_BYTES_PER_S,
    SMALL_TOKENS_HIDDEN,
    WORDS,
    Regime,
    interval_ratio,
    knows_pair,
    regime,
)
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Lora


def of(problem: Problem, plan: Plan) -> Regime:
    return Regime(int(regime(problem, Plans.of(plan))[0]))


def marked(problem: Problem, *, engine: bool, chip: bool) -> Problem:
    """The problem with an engine and a chip that runs calibrated, or not."""
    (group,) = problem.cluster.groups
    group = replace(group, accelerator=replace(group.accelerator, is_calibrated=chip))
    cluster = replace(problem.cluster, groups=(group,))
    on = (group.accelerator.architecture,)
    known = replace(problem.engine, is_calibrated=engine, calibrated_on=on)
    return replace(problem, engine=known, cluster=cluster)


def test_an_engine_is_known_only_on_architectures_where_it_ran(real, wide):
    here = marked(real(wide, sequence=8192), engine=True, chip=True)
    there = replace(here, engine=replace(here.engine, calibrated_on=("another",)))

    assert (knows_pair(here), knows_pair(there)) == (True, False)
    near, far = (interval_ratio(each, np.zeros(1, np.int64))[0] for each in (here, there))
    new, chip = here.assumptions.interval_pipeline_ratio, here.assumptions.interval_chip_ratio
    assert near == here.assumptions.interval_pipeline_known_ratio
    assert np.log(far) == pytest.approx(np.hypot(np.log(new), np.log(chip)), rel=1e-12)


def only(problem: Problem, **ratios: float) -> Problem:
    return replace(problem, assumptions=replace(problem.assumptions, **ratios))


@pytest.fixture
def wide(llama):
    """Wide enough to keep a device busy: 8192 tokens of hidden 4096."""
    return llama(hidden=4096, heads=32, head_dim=128, width=11008)


def test_the_layout_decides_among_dense_networks(real, wide):
    problem = real(wide, devices=8, sequence=8192, batch=16)

    assert of(problem, Plan(dp=4, pp=2, micro_batches=4)) is Regime.PIPELINE
    assert of(problem, Plan(dp=4, pp=2, zero=3, shard=4, micro_batches=4)) is Regime.PIPELINE
    assert of(problem, Plan(dp=8, zero=3, shard=8, micro_batches=2)) is Regime.SHARDED
    assert of(problem, Plan(dp=8, zero=1, shard=8, micro_batches=2)) is Regime.REPLICATED


def test_each_row_has_its_own_regime(real, wide):
    problem = real(wide, devices=8, sequence=8192, batch=16)
    plans = Plans.of([Plan(dp=8, micro_batches=2), Plan(dp=4, pp=2, micro_batches=4)])

    assert regime(problem, plans).tolist() == [Regime.REPLICATED, Regime.PIPELINE]


def test_few_elements_a_rank_are_small(real, llama):
    # tokens x hidden / (tp cp) below 2e6: 8192 x 4096 = 33.6e6 for one rank, 1.05e6 for 32
    network = llama(hidden=4096, heads=32, kv_heads=32, width=11008)
    problem = real(network, devices=32, sequence=8192, batch=1)

    assert 8192 * 4096 / 16 > SMALL_TOKENS_HIDDEN > 8192 * 4096 / 32
    assert of(problem, Plan(tp=32, zero=3)) is Regime.SMALL
    assert of(problem, Plan(tp=16, dp=2, zero=3)) is Regime.SHARDED


def test_narrow_networks_are_small(real, llama):
    assert of(real(llama(hidden=2048), sequence=8192), Plan(zero=3)) is Regime.SMALL


def test_convolutions_are_no_small_transformers(real):
    problem = real(network("resnet-50"), sequence=1)

    assert of(problem, Plan()) is Regime.CONVOLUTION


def test_context_is_long_from_32768_tokens_on(real, wide):
    plan = Plan(zero=3)

    assert of(real(wide, sequence=LONG_TOKENS), plan) is Regime.LONG
    assert of(real(wide, sequence=LONG_TOKENS - 1), plan) is Regime.SHARDED


@pytest.mark.parametrize("gpu", ["v100", "rtx-4090", "titan-rtx"])
def test_old_and_consumer_devices_are_slow(real, wide, gpu: str):
    assert of(real(wide, gpu=gpu, sequence=8192), Plan(zero=3)) is Regime.SLOW


def test_only_a_narrow_link_that_is_crossed_is_slow(real, wide):
    two_nodes, one_node = (real(wide, devices=n, sequence=8192, batch=n) for n in (16, 8))
    plan = Plan(dp=16, zero=3, shard=16)

    def at(problem: Problem, bytes_per_s: float) -> Problem:
        *inside, outside = problem.cluster.links
        links = (*inside, replace(outside, bytes_per_s=bytes_per_s, oversubscription=1.0))
        return replace(problem, cluster=replace(problem.cluster, links=links))

    assert of(at(two_nodes, SLOW_BYTES_PER_S), plan) is Regime.SLOW
    assert of(at(two_nodes, SLOW_BYTES_PER_S * 1.01), plan) is Regime.SHARDED
    assert of(one_node, Plan(dp=8, zero=3, shard=8)) is Regime.SHARDED


def test_adapters_are_a_regime(real, wide):
    assert of(real(wide, sequence=8192, lora=Lora()), Plan(zero=3)) is Regime.ADAPTED


def test_of_several_regimes_the_last_counts(real):
    """Experts with adapters, long context, on an old device, in a pipeline."""
    mixtral = network("mixtral-8x7b")
    experts = real(mixtral, gpu="v100", devices=8, sequence=LONG_TOKENS, lora=Lora())
    dense = real(network("llama-3.1-8b"), gpu="v100", devices=8, sequence=LONG_TOKENS)

    assert of(experts, Plan(dp=4, pp=2, micro_batches=4)) is Regime.EXPERTS
    assert of(dense, Plan(dp=4, pp=2, micro_batches=4)) is Regime.SLOW


def test_the_order_of_regimes_decides_not_the_width(ideal, llama):
    """Of sharded and long the later counts, though its interval is the narrower one."""
    problem = ideal(llama(), sequence=LONG_TOKENS)
    narrow = only(problem, interval_sharded_ratio=1.5, interval_long_ratio=1.1)
    found = regime(narrow, Plans.of(Plan(zero=3)))

    assert found.tolist() == [Regime.LONG]
    assert interval_ratio(marked(narrow, engine=False, chip=True), found)[0] == 1.1


def test_a_small_network_that_is_only_replicated_is_replicated(real, llama):
    small = real(llama(hidden=2048), devices=8, sequence=8192, batch=8)

    assert of(small, Plan(dp=8)) is Regime.REPLICATED
    assert of(small, Plan(dp=4, pp=2, micro_batches=2)) is Regime.SMALL


def test_every_regime_has_words_and_two_factors():
    known = catalog.assumptions()

    assert set(WORDS) == set(Regime)
    for kind in Regime:
        new = getattr(known, f"interval_{kind.name.lower()}_ratio")
        # equal ones differ by the fourth digit of their factors, where the file of the fit ends
        assert 1.0 < getattr(known, f"interval_{kind.name.lower()}_known_ratio") <= new * (1 + 2e-4)


def test_the_factor_is_that_of_the_regime_and_of_what_is_known_of_the_engine(ideal, llama):
    problem = only(ideal(llama()), interval_sharded_ratio=1.4, interval_sharded_known_ratio=1.2)
    regimes = np.array([Regime.SHARDED])

    assert interval_ratio(marked(problem, engine=True, chip=True), regimes)[0] == 1.2
    assert interval_ratio(marked(problem, engine=False, chip=True), regimes)[0] == 1.4


def test_a_chip_without_runs_adds_its_own_factor_in_squares(ideal, llama):
    problem = only(ideal(llama()), interval_sharded_ratio=np.exp(0.3), interval_chip_ratio=np.exp(0.4))

    found = interval_ratio(marked(problem, engine=False, chip=False), np.array([Regime.SHARDED]))

    # 3-4-5
    assert found[0] == pytest.approx(np.exp(0.5), rel=1e-12)
