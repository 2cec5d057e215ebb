"""Terms of the step in a world without losses: each is what the closed form in its docstring says."""

from dataclasses import replace

import numpy as np
import pytest

from escala.model.estimate import time_of
from escala.model.flops import forward_flop
from escala.model.parameters import network_parameters
from escala.model.plan import Compile, LocalWire, Plan, Plans, Recompute, Schedule
from escala.model.workload import Optimizer

ONE_F_ONE_B, INTERLEAVED = Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED
ENDLESS = 1e30


def with_chip(problem, **values):
    group = problem.cluster.groups[0]
    other = replace(group, accelerator=replace(group.accelerator, **values))
    return replace(problem, cluster=replace(problem.cluster, groups=(other,)))


def with_time(problem, **values):
    return replace(problem, engine=replace(problem.engine, time=replace(problem.engine.time, **values)))


def assuming(problem, **values):
    return replace(problem, assumptions=replace(problem.assumptions, **values))


def computing(problem):
    """Nothing but arithmetic takes time: memory is endlessly fast."""
    return with_chip(problem, memory_bytes_per_s=ENDLESS, flash2_efficiency=1.0)


def talking(problem):
    """Nothing but links take time: arithmetic and memory are endlessly fast."""
    peaks = {name: ENDLESS for name in ("bf16_flop_per_s", "fp16_flop_per_s", "fp32_flop_per_s")}
    return with_chip(problem, memory_bytes_per_s=ENDLESS, **peaks)


def linked(problem, bytes_per_s: float):
    """All links at one speed."""
    links = tuple(replace(link, bytes_per_s=bytes_per_s) for link in problem.cluster.links)
    return replace(problem, cluster=replace(problem.cluster, links=links))


def terms(problem, plan: Plan):
    return time_of(problem, Plans.of(plan))


def parameters(problem) -> int:
    return network_parameters(problem.workload.network).total


def busy_s(time) -> float:
    return float(time.matmul_s[0] + time.attention_s[0] + time.elementwise_s[0] + time.recompute_s[0])


def test_one_device_computes_at_its_peak(ideal, llama):
    problem = computing(ideal(llama(), batch=2))
    products, attention, head = forward_flop(problem.workload.network, 1024)

    time = terms(problem, Plan(micro_batch=2))

    # forward and twice backward at 100 TFLOP/s; causal attention: (1 + 1/s) / 2 of the full work, 3.6 times
    assert time.matmul_s[0] == pytest.approx(2 * 3 * products / 1e14, rel=1e-12)
    assert time.attention_s[0] == pytest.approx(2 * 3.6 * attention * (1025 / 2048) / 1e14, rel=1e-12)
    assert time.head_s[0] == pytest.approx(2 * 3 * head / 1e14, rel=1e-12)
    assert time.step_s[0] == pytest.approx(time.matmul_s[0] + time.attention_s[0] + time.head_s[0], rel=1e-9)


def test_memory_passes_by_hand(ideal, llama):
    problem = with_time(ideal(llama(ends=False)), elementwise_passes=10.0)

    # both ways 10 passes over 1024 * (2048 + 1.5 * 5632 / 4) elements of 2 bytes, in 4 layers, at 1 TB/s
    moved = 4 * 10 * 1024 * (2048 + 1.5 * 5632 / 4) * 2
    assert terms(problem, Plan()).elementwise_s[0] == pytest.approx(moved / 1e12, rel=1e-12)


def test_full_recompute_runs_forward_again(ideal, llama):
    problem = computing(ideal(llama(ends=False)))
    products, attention, _ = forward_flop(problem.workload.network, 1024)

    time = terms(problem, Plan(recompute=Recompute.FULL))

    assert time.recompute_s[0] == pytest.approx((products + attention * 1025 / 2048) / 1e14, rel=1e-12)


def test_recomputing_half_of_the_layers_costs_half(ideal, llama):
    problem = ideal(llama(ends=False))
    some = Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=2)

    half, whole = terms(problem, some), terms(problem, Plan(recompute=Recompute.FULL))

    assert half.recompute_s[0] == pytest.approx(whole.recompute_s[0] / 2, rel=1e-12)


@pytest.mark.parametrize(("pp", "micro", "virtual"), [(2, 8, 1), (4, 8, 1), (4, 8, 2), (8, 16, 2)])
def test_the_bubble_is_stages_less_one_over_micro_batches_and_chunks(ideal, llama, pp, micro, virtual):
    # Narayanan 2021, section 2.2: (p - 1) / (m v) of the busy time, on equal stages
    problem = computing(ideal(llama(layers=16, ends=False), devices=pp, batch=micro))
    schedule = INTERLEAVED if virtual > 1 else ONE_F_ONE_B

    time = terms(problem, Plan(pp=pp, schedule=schedule, virtual_stages=virtual, micro_batches=micro))

    assert time.bubble_s[0] / busy_s(time) == pytest.approx((pp - 1) / (micro * virtual), rel=1e-9)


def test_zero_bubble_v_idles_less_than_1f1b(ideal, llama):
    problem = computing(ideal(llama(layers=16, ends=False), devices=4, batch=16))
    plain = Plan(pp=4, schedule=ONE_F_ONE_B, micro_batches=16)
    v = Plan(pp=4, schedule=Schedule.ZERO_BUBBLE_V, virtual_stages=2, micro_batches=16)

    assert terms(problem, v).bubble_s[0] < terms(problem, plain).bubble_s[0]


def test_stages_divide_the_work(ideal, llama):
    whole = terms(computing(ideal(llama(ends=False), batch=8)), Plan(micro_batches=8))
    half = terms(
        computing(ideal(llama(ends=False), devices=2, batch=8)),
        Plan(pp=2, schedule=ONE_F_ONE_B, micro_batches=8),
    )

    assert half.matmul_s[0] == pytest.approx(whole.matmul_s[0] / 2, rel=1e-12)


def test_the_slowest_rank_sets_the_pace(ideal, llama):
    # one layer and a wide head against one layer: the head's rank is timed
    problem = computing(ideal(llama(layers=2), devices=2, batch=4))

    time = terms(problem, Plan(pp=2, schedule=ONE_F_ONE_B, micro_batches=4))

    _, _, head = forward_flop(problem.workload.network, 1024)
    assert time.head_s[0] == pytest.approx(4 * 3 * head / 1e14, rel=1e-12)


def test_tensor_parallel_reduces_twice_each_way(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=4))
    payload = 1024 * 2048 * 2

    # 2 * 3/4 of the payload at 100 GB/s, after attention and feed-forward, both ways, in 4 layers
    once = 2 * 3 / 4 * payload / 100e9
    assert terms(problem, Plan(tp=4)).tensor_parallel_s[0] == pytest.approx(4 * 4 * once, rel=1e-12)


def test_sequence_parallel_gathers_once_more_in_backward(ideal, llama):
    dtensor = talking(ideal(llama(ends=False), devices=4))
    megatron = replace(dtensor, engine=replace(dtensor.engine, messages=()))
    plans = Plans.of([Plan(tp=4), Plan(tp=4, sp=True)])

    kept, again = (time_of(each, plans).tensor_parallel_s for each in (dtensor, megatron))

    # forward as much, backward 1.5 times where a part of the input was kept: 2.5 against 2
    assert kept[1] / kept[0] == pytest.approx(1.0, rel=1e-12)
    assert again[1] / again[0] == pytest.approx(1.25, rel=1e-12)


def test_asynchronous_tensor_parallel_hides_a_share(ideal, llama):
    problem = with_time(
        talking(ideal(llama(ends=False), devices=4)), tensor_exposed=1.0, compiled_tensor_exposed=0.5
    )
    plans = Plans.of([Plan(tp=4), Plan(tp=4, compile=Compile.DEFAULT)])

    time = time_of(problem, plans).tensor_parallel_s

    assert time[1] == pytest.approx(time[0] / 2, rel=1e-12)


def test_ring_attention_moves_the_keys_and_values_of_the_others(ideal, llama):
    problem = with_time(talking(ideal(llama(ends=False), devices=4)), context_exposed=1.0)

    # 3/4 of 1024 * 2 * 512 elements of 2 bytes at 100 GB/s; backward twice; 4 layers
    once = 3 / 4 * 1024 * 2 * 512 * 2 / 100e9
    time = terms(problem, Plan(cp=4, zero=3, reshard=True, shard=4))
    assert time.context_parallel_s[0] == pytest.approx(4 * 3 * once, rel=1e-12)


def test_dispatch_by_the_cpu_is_the_floor_of_a_layer(ideal, llama):
    problem = with_time(talking(ideal(llama(ends=False))), dispatch_s=1e-3, dispatch_backward_ratio=2.0)

    # 4 layers, 1 ms forward and 2 ms backward
    assert terms(problem, Plan()).step_s[0] == pytest.approx(4 * 3e-3, rel=1e-9)


def test_ddp_all_reduces_gradients(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=8))

    # 2 * 7/8 * 4 bytes a parameter at 100 GB/s
    expected = 2 * 7 / 8 * 4 * parameters(problem) / 100e9
    assert terms(problem, Plan(dp=8)).gradient_sync_s[0] == pytest.approx(expected, rel=1e-12)


def test_zero_1_scatters_gradients_and_gathers_weights(ideal, llama):
    problem = with_time(talking(ideal(llama(ends=False), devices=8, batch=8)), zero_1_all_reduces=False)

    # 7/8 * (4 + 2) bytes a parameter at 100 GB/s
    expected = 7 / 8 * 6 * parameters(problem) / 100e9
    time = terms(problem, Plan(dp=8, zero=1, shard=8))
    assert time.gradient_sync_s[0] == pytest.approx(expected, rel=1e-12)


def test_zero_1_of_pytorch_all_reduces_gradients_and_gathers_stored_weights(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=8))

    # 7/8 * (2 * 4 + 4) bytes a parameter at 100 GB/s; DDP only 2 * 4
    zero, ddp = terms(problem, Plan(dp=8, zero=1, shard=8)), terms(problem, Plan(dp=8))
    assert zero.gradient_sync_s[0] == pytest.approx(7 / 8 * 12 * parameters(problem) / 100e9, rel=1e-12)
    assert zero.gradient_sync_s[0] == pytest.approx(1.5 * ddp.gradient_sync_s[0], rel=1e-12)


@pytest.mark.parametrize(
    ("wire", "sent"),
    [
        (LocalWire.FP32, 2 * 7 / 8 * 4),  # all-reduced
        (LocalWire.BF16, 2 * 7 / 8 * 2),
        (LocalWire.INT8, 7 * (1 + 4 / 1024)),  # gathered from all, with the scales
        (LocalWire.FP4, 7 * (1 / 2 + 4 / 1024)),
    ],
)
def test_replicas_with_local_steps_exchange_once_in_so_many(ideal, llama, wire, sent):
    problem = talking(ideal(llama(ends=False), devices=8, batch=8))

    expected = sent * parameters(problem) / 100e9 / 20
    time = terms(problem, Plan(dp=8, local_steps=20, local_wire=wire))
    assert time.gradient_sync_s[0] == pytest.approx(expected, rel=1e-12)


def test_fragments_send_as_much_in_smaller_messages(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=8))
    whole, parts = (terms(problem, Plan(dp=8, local_steps=20, local_fragments=n)) for n in (1, 4))

    # without latency four quarters take as long as the whole
    assert parts.gradient_sync_s[0] == pytest.approx(whole.gradient_sync_s[0], rel=1e-12)


def test_a_fragment_travels_while_the_replicas_train_on(ideal, llama):
    problem = linked(computing(ideal(llama(ends=False), devices=8, batch=8)), 1e7)
    plan = Plan(dp=8, local_steps=20, local_fragments=4)
    time = terms(problem, plan)
    own_s, once_s = busy_s(time), time.gradient_sync_s[0] * 20 / 4

    overlapped = terms(problem, replace(plan, local_overlap_steps=2))

    assert once_s > 2 * own_s
    assert overlapped.gradient_sync_s[0] == pytest.approx(4 * (once_s - 2 * own_s) / 20, rel=1e-9)


def test_a_fragment_travels_no_longer_than_until_the_next_one(ideal, llama):
    problem = linked(computing(ideal(llama(ends=False), devices=8, batch=8)), 1e6)
    plan = Plan(dp=8, local_steps=20, local_fragments=4)

    # 4 fragments in 20 steps: one every 5
    five, most = (terms(problem, replace(plan, local_overlap_steps=n)) for n in (5, 19))

    assert 0 < five.gradient_sync_s[0] == most.gradient_sync_s[0]


def test_sharded_replicas_with_local_steps_exchange_their_shards(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=8))

    # two replicas of four shards: 2 * 1/2 * 4 bytes of a quarter of the parameters
    expected = 4 * parameters(problem) / 4 / 100e9 / 10
    time = terms(problem, Plan(dp=8, zero=3, shard=4, local_steps=10))
    assert time.gradient_sync_s[0] == pytest.approx(expected, rel=1e-12)


def test_gradient_reduction_hides_behind_backward(ideal, llama):
    problem = with_time(ideal(llama(ends=False), devices=8, batch=64, sequence=8192), gradient_hidden=1.0)

    # backward of 8 x 8192 tokens takes longer than the all-reduce
    assert terms(problem, Plan(dp=8, micro_batch=8)).gradient_sync_s[0] == 0.0


def test_full_sharding_gathers_twice_and_scatters_once(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=8))

    # 7/8 * (2 + 2) bytes of weights and 4 of gradients a parameter at 100 GB/s, nothing to hide behind
    expected = 7 / 8 * 8 * parameters(problem) / 100e9
    time = terms(problem, Plan(dp=8, zero=3, reshard=True, shard=8))
    assert time.sharding_s[0] == pytest.approx(expected, rel=1e-9)


def test_without_resharding_weights_are_gathered_once(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=32))

    # 4 micro-batches: one gather of 2 bytes; four scatters of 4 bytes
    expected = 7 / 8 * (2 + 4 * 4) * parameters(problem) / 100e9
    time = terms(problem, Plan(dp=8, zero=3, shard=8, micro_batches=4))
    assert time.sharding_s[0] == pytest.approx(expected, rel=1e-9)


def test_resharding_gathers_for_every_micro_batch(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=8, batch=32))

    expected = 7 / 8 * 4 * (2 + 2 + 4) * parameters(problem) / 100e9
    time = terms(problem, Plan(dp=8, zero=3, reshard=True, shard=8, micro_batches=4))
    assert time.sharding_s[0] == pytest.approx(expected, rel=1e-9)


def test_sharding_hides_behind_long_computation(ideal, llama):
    problem = ideal(llama(ends=False), devices=8, batch=64, sequence=8192)

    time = terms(problem, Plan(dp=8, zero=3, reshard=True, shard=8, micro_batch=8))

    assert time.sharding_s[0] < 1e-9 * time.step_s[0]


def test_a_share_of_the_sharding_traffic_never_hides(ideal, llama):
    problem = assuming(ideal(llama(ends=False), devices=8, batch=64, sequence=8192), overlap_floor=0.2)

    time = terms(problem, Plan(dp=8, zero=3, reshard=True, shard=8, micro_batch=8))

    traffic = 7 / 8 * 8 * parameters(problem) / 100e9
    assert time.sharding_s[0] == pytest.approx(0.2 * traffic, rel=1e-6)


def test_hybrid_sharding_reduces_shards_between_groups(ideal, llama):
    problem = talking(ideal(llama(ends=False), devices=16, batch=16))

    # 2 replicas of each shard of N / 8: all-reduce of 4 bytes over one 10 GB/s port
    expected = 2 * 1 / 2 * 4 * parameters(problem) / 8 / 10e9
    time = terms(problem, Plan(dp=16, zero=3, reshard=True, shard=8))
    assert time.gradient_sync_s[0] == pytest.approx(expected, rel=1e-12)


def test_stages_send_activations_and_their_gradients(ideal, llama):
    problem = talking(ideal(llama(layers=8, ends=False), devices=2, batch=8))
    plan = Plan(pp=2, schedule=ONE_F_ONE_B, micro_batches=8)

    # 1024 * 2048 * 2 bytes at 100 GB/s: the first forward, the last backward, 7 times both ways at once
    assert terms(problem, plan).transfer_s[0] == pytest.approx((2 + 7) * 1024 * 2048 * 2 / 100e9, rel=1e-12)


def test_opposite_sends_in_turn_take_twice_as_long(ideal, llama):
    problem = talking(ideal(llama(layers=8, ends=False), devices=2, batch=8))
    plan = Plan(pp=2, schedule=ONE_F_ONE_B, micro_batches=8)
    turning = replace(problem.engine, time=replace(problem.engine.time, exchanges_in_turn=True))

    assert terms(replace(problem, engine=turning), plan).transfer_s[0] == pytest.approx(
        (2 + 7 * 2) * 1024 * 2048 * 2 / 100e9, rel=1e-12
    )


@pytest.mark.parametrize(
    ("exposed", "sends"),
    [
        # 2 * 8 micro-batches * 4 chunks; to the eighth stage and back; a quarter of what is between
        (1.0, 64),
        (0.0, 14),
        (0.25, 14 + 0.25 * 50),
    ],
)
def test_interleaving_sends_once_for_every_chunk_and_an_engine_may_hide_it(ideal, llama, exposed, sends):
    problem = talking(ideal(llama(layers=8, ends=False), devices=2, batch=8))
    problem = replace(
        problem, engine=replace(problem.engine, time=replace(problem.engine.time, send_exposed=exposed))
    )
    plain = Plan(pp=2, schedule=ONE_F_ONE_B, micro_batches=8)
    plans = Plans.of([plain, replace(plain, schedule=INTERLEAVED, virtual_stages=4)])

    shown = time_of(problem, plans).transfer_s

    assert list(shown) == pytest.approx(
        [each * 1024 * 2048 * 2 / 100e9 for each in (2 + 7, sends)], rel=1e-12
    )


def test_gradients_added_inside_products_show_a_share(ideal, llama):
    problem = assuming(ideal(llama(ends=False), batch=4), accumulate_bytes=6.0)
    fusing = replace(problem.engine, time=replace(problem.engine.time, accumulation_exposed=0.5))

    # 3 bytes a parameter for each of 4 micro-batches at 1 TB/s
    assert terms(replace(problem, engine=fusing), Plan(micro_batches=4)).accumulate_s[0] == pytest.approx(
        4 * 3 * parameters(problem) / 1e12, rel=1e-12
    )


def test_sp_sends_each_tensor_ranks_part(ideal, llama):
    problem = talking(ideal(llama(layers=8, ends=False), devices=8, batch=8))
    plain = Plan(tp=4, pp=2, schedule=ONE_F_ONE_B, micro_batches=8)
    plans = Plans.of([plain, replace(plain, sp=True)])

    time = time_of(problem, plans).transfer_s

    assert time[1] == pytest.approx(time[0] / 4, rel=1e-12)


def test_gradients_are_accumulated_from_the_second_micro_batch_on(ideal, llama):
    problem = assuming(ideal(llama(ends=False), batch=4), accumulate_bytes=6.0)

    # 6 bytes a parameter for each of 4 micro-batches at 1 TB/s; nothing for one
    assert terms(problem, Plan(micro_batches=4)).accumulate_s[0] == pytest.approx(
        4 * 6 * parameters(problem) / 1e12, rel=1e-12
    )
    assert terms(problem, Plan()).accumulate_s[0] == 0.0


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_parameter"),
    [
        (Optimizer(), 32),
        (Optimizer(state_bytes=1.0), 20),
        (Optimizer(moments=1), 24),
        (Optimizer(moments=0), 16),
    ],
)
def test_the_optimizer_reads_and_writes_its_states(ideal, llama, optimizer, bytes_per_parameter):
    problem = assuming(ideal(llama(ends=False)), optimizer_pass_bytes=32.0)
    other = replace(problem, workload=replace(problem.workload, optimizer=optimizer))

    # 16 bytes for weights and gradients, each moment read and written
    expected = bytes_per_parameter * parameters(problem) / 1e12
    assert terms(other, Plan()).optimizer_s[0] == pytest.approx(expected, rel=1e-12)


def test_sharded_states_are_updated_in_parallel(ideal, llama):
    problem = ideal(llama(ends=False), devices=8, batch=8)
    plans = Plans.of([Plan(dp=8), Plan(dp=8, zero=1, shard=8), Plan(dp=8, zero=3, shard=8, reshard=True)])

    seconds = time_of(problem, plans).optimizer_s

    assert (seconds[0] / seconds).tolist() == pytest.approx([1, 8, 8], rel=1e-12)


@pytest.mark.parametrize(("devices", "doublings"), [(1, 0), (8, 0), (16, 1), (64, 3)])
def test_stragglers_take_a_share_for_each_doubling_beyond_8(ideal, llama, devices, doublings):
    problem = assuming(
        computing(ideal(llama(ends=False), devices=devices, batch=devices)), straggler_per_doubling=0.01
    )

    time = terms(problem, Plan(dp=devices))

    assert time.straggler_s[0] == pytest.approx(0.01 * doublings * busy_s(time), rel=1e-9)


def test_overhead_is_per_step_and_per_micro_batch(ideal, llama):
    problem = with_time(ideal(llama(), batch=4), step_overhead_s=0.1, micro_batch_overhead_s=0.01)

    assert terms(problem, Plan(micro_batches=4)).overhead_s[0] == pytest.approx(0.1 + 4 * 0.01, rel=1e-12)


def test_a_wide_embedding_is_read_once_for_each_token(ideal, llama):
    problem = assuming(ideal(llama()), embedding_pass_bytes=10.0)

    assert terms(problem, Plan()).embedding_s[0] == pytest.approx(10 * 1024 * 2048 / 1e12, rel=1e-12)


def test_logits_are_passed_over(ideal, llama):
    problem = assuming(with_chip(ideal(llama()), bf16_flop_per_s=ENDLESS), loss_pass_bytes=20.0)
    weights_and_sides = (1024 * 2048 + 2048 * 32000 + 1024 * 32000) * 2

    # three products that move their matrices, and 20 bytes for each logit, at 1 TB/s
    expected = (3 * weights_and_sides + 20 * 1024 * 32000) / 1e12
    assert terms(problem, Plan()).head_s[0] == pytest.approx(expected, rel=1e-12)


def test_terms_of_all_plans_are_columns(ideal, llama):
    problem = ideal(llama(), devices=8, batch=8)

    time = time_of(
        problem, Plans.of([Plan(dp=8), Plan(tp=8, micro_batches=8), Plan(dp=4, cp=2, micro_batches=2)])
    )

    assert all(getattr(time, name).shape == (3,) for name in type(time).__slots__)
    assert np.isfinite(time.step_s).all()
