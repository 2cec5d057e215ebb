from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from escala.model.estimate import estimate
from escala.model.memory import Verdict, out_of_memory_probability
from escala.model.parameters import block_parameters, network_parameters
from escala.model.plan import Compile, Offload, Plan, Plans, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Lengths, Lora, Method, Optimizer

GIB = 2.0**30
TOKENS = 1024
WHOLE = Plan()


def held(problem: Problem, plan: Plan = WHOLE):
    return estimate(problem, Plans.of(plan)).memory.kinds


def states(problem: Problem, plan: Plan) -> float:
    kinds = held(problem, plan)
    return float(kinds.weights_bytes[0] + kinds.gradients_bytes[0] + kinds.optimizer_bytes[0])


def parameters(problem: Problem) -> int:
    return network_parameters(problem.workload.network).total


def largest(problem: Problem) -> int:
    stack = problem.workload.network.stacks[0]
    return block_parameters(stack.blocks[0], stack.hidden).total


def full_shard(n: int, **values) -> Plan:
    return Plan(dp=n, zero=3, reshard=True, shard=n, **values)


def test_megatron_without_distributed_optimizer_holds_18_bytes_a_parameter(real, llama):
    # 2 weight + 4 gradient + 4 master + 8 moments
    problem = real(llama(), "megatron-core", devices=4)

    assert states(problem, Plan(dp=4)) == 18 * parameters(problem)


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_megatron_with_distributed_optimizer_holds_6_plus_12_over_dp(real, llama, dp):
    problem = real(llama(), "megatron-core", devices=dp)

    assert states(problem, Plan(dp=dp, zero=1, shard=dp)) == (6 + 12 / dp) * parameters(problem)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_fsdp2_holds_16_bytes_over_n(real, llama, n):
    # fp32 weight 4, gradient 4, moments 8
    problem = real(llama(), "pytorch", devices=n)

    assert states(problem, full_shard(n)) == 16 * parameters(problem) / n


def test_hsdp_shards_over_its_group_alone(real, llama):
    problem = real(llama(), "pytorch", devices=64)

    assert states(problem, Plan(dp=64, zero=3, reshard=True, shard=8)) == 16 * parameters(problem) / 8


def test_ddp_under_autocast_adds_2_bytes_of_cast_weights(real, llama):
    # 4 + 4 + 8 and the 16-bit copy that autocast keeps until backward
    problem = real(llama(), "pytorch", devices=8)

    assert states(problem, Plan(dp=8)) == 18 * parameters(problem)


def test_zero_2_keeps_whole_weights_and_shards_the_rest(real, llama):
    # DeepSpeed in 16 bit: 2 + (2 + 12) / 8
    problem = real(llama(), "deepspeed", devices=8)

    assert states(problem, Plan(dp=8, zero=2, shard=8)) == (2 + 14 / 8) * parameters(problem)


def test_deepspeed_zero_3_shards_all_and_holds_live_parameters(real, llama):
    problem = real(llama(), "deepspeed", devices=8)
    count = parameters(problem)
    plan = Plan(dp=8, zero=3, reshard=True, shard=8)

    kinds = held(problem, plan)

    # 16 / n; 2 B of at most 1e9 live; buckets 4 B of at most 5e8; 8 B for each of min(1e9, N / n) at the step
    assert count < 5e8
    assert states(problem, plan) == 16 * count / 8
    assert kinds.gathered_bytes[0] == 2 * count
    assert kinds.buckets_bytes[0] == 4 * count
    assert kinds.step_bytes[0] == 8 * count / 8


def test_deepspeed_limits_hold_for_a_large_network(real, llama):
    problem = real(llama(layers=64, hidden=8192, heads=64, width=28672), "deepspeed", devices=8)

    kinds = held(problem, Plan(dp=8, zero=3, reshard=True, shard=8))

    assert parameters(problem) > 8e9
    assert kinds.gathered_bytes[0] == 2 * 1e9
    assert kinds.buckets_bytes[0] == 4 * 5e8
    assert kinds.step_bytes[0] == 8 * 1e9


def test_hf_trainer_holds_fp32_states_casts_and_foreach_temporaries(real, llama):
    # 4 + 4 + 8 + 2 casts, and 4 more at the step
    problem = real(llama(), "hf-trainer")

    assert states(problem, Plan()) == 18 * parameters(problem)
    assert held(problem).step_bytes[0] == 4 * parameters(problem)


def test_pure_bf16_holds_8_bytes_and_2_more_at_the_step(real, llama):
    # weights, gradients and two moments in bf16
    problem = real(llama(), "hf-bf16", optimizer=Optimizer(state_bytes=2.0))

    assert states(problem, Plan()) == 8 * parameters(problem)
    assert held(problem).step_bytes[0] == 2 * parameters(problem)


def test_8_bit_moments_take_one_byte_each(real, llama):
    wide = real(llama(), "hf-bf16")
    narrow = real(llama(), "hf-bf16", optimizer=Optimizer(state_bytes=1.0))

    # 2 moments * (4 - 1) bytes
    assert states(wide, Plan()) - states(narrow, Plan()) == 6 * parameters(wide)


def test_sgd_without_momentum_has_no_state(real, llama):
    problem = real(llama(), "hf-bf16", optimizer=Optimizer(kind="sgd", moments=0))

    assert held(problem).optimizer_bytes[0] == 0


def test_lora_freezes_16_bit_weights_and_trains_adapters_alone(real, llama):
    problem = real(llama(ends=False), "hf-bf16", lora=Lora(rank=8))
    h, f, kv, layers = 2048, 5632, 512, 4

    # rank * (in + out) of q, k, v, o, gate, up, down, with fp32 adapters: 4 weight + 4 gradient + 8 moments
    sides = (h + h) + 2 * (h + kv) + (h + h) + 3 * (h + f)
    adapters = layers * 8 * sides
    kinds = held(problem)
    assert kinds.weights_bytes[0] == 2 * parameters(problem) + 4 * adapters
    assert kinds.gradients_bytes[0] == 4 * adapters
    assert kinds.optimizer_bytes[0] == 8 * adapters


@pytest.mark.parametrize(
    ("engine", "plan", "bytes_per_logit"),
    [
        ("pytorch", Plan(), 12),
        ("hf-bf16", Plan(), 12),
        ("hf-trainer", Plan(), 17),
        ("llm-foundry", Plan(), 4),
        ("megatron-deepspeed", Plan(), 12),
        ("hf-deepspeed", Plan(), 8.2),
        ("torchtune", Plan(), 6),
        ("torchtune", Plan(compile=Compile.DEFAULT), 2.4),
        ("pytorch", Plan(fused_loss=True), 4),
    ],
)
def test_the_loss_path_decides_the_bytes_of_a_logit(real, llama, engine, plan, bytes_per_logit):
    problem = real(llama(), engine)

    # c V t, and 8 h t of the final norm
    expected = TOKENS * (bytes_per_logit * 32000 + 8 * 2048)
    assert held(problem, plan).logits_bytes[0] == pytest.approx(expected, rel=1e-12)


def test_vocabulary_parallel_loss_is_split_by_tp(real, llama):
    problem = real(llama(), "megatron-core", devices=4)

    # the final norm is whole without SP
    assert held(problem, Plan(tp=4)).logits_bytes[0] == TOKENS * (12 * 32000 / 4 + 8 * 2048)
    assert held(problem, Plan(tp=4, sp=True)).logits_bytes[0] == TOKENS * (12 * 32000 + 8 * 2048) / 4


def test_one_copy_of_the_logits_of_llama_3_has_7_83_gib(real, llama):
    # 16,384 tokens x 128,256 x 4 B, the figure in unsloth issue 824
    problem = real(llama(vocab=128_256), "pytorch", sequence=16_384)

    logits = held(problem, Plan(fused_loss=True)).logits_bytes[0] - 16_384 * 8 * 2048

    assert f"{logits / GIB:.2f}" == "7.83"


def test_fsdp2_gathers_10_bytes_of_the_largest_layer(real, llama):
    problem = real(llama(), "pytorch", devices=8)
    ends = 2 * 32000 * 2048 + 2048

    # current and prefetched layer 2 + 2, gradients 2, fp32 reduce input 4; ends stay gathered in 16 bit
    gathered = held(problem, full_shard(8)).gathered_bytes[0]
    assert gathered == 10 * largest(problem) + 2 * ends


def test_fsdp2_without_resharding_keeps_all_weights_gathered(real, llama):
    problem = real(llama(), "pytorch", devices=8)

    gathered = held(problem, Plan(dp=8, zero=3, shard=8)).gathered_bytes[0]

    assert gathered == 2 * parameters(problem) + 6 * largest(problem)


def test_nothing_is_gathered_without_zero_3(real, llama):
    assert held(real(llama(), "megatron-core", devices=8), Plan(dp=8, zero=1, shard=8)).gathered_bytes[0] == 0


def test_activations_of_all_layers_are_held_until_the_loss(real, llama):
    kinds = held(real(llama(), "hf-bf16"))

    assert kinds.activations_bytes[0] == 4 * 88_136 * TOKENS
    assert kinds.working_bytes[0] == 0


def test_full_recompute_holds_inputs_and_one_layer_at_work(real, llama):
    kinds = held(real(llama(), "hf-bf16"), Plan(recompute=Recompute.FULL))

    assert kinds.activations_bytes[0] == 4 * 2 * 2048 * TOKENS
    assert kinds.working_bytes[0] == (88_136 + 4 * 2048 + 8 * 5632) * TOKENS


def test_recomputing_the_first_layers_holds_a_mixture(real, llama):
    kinds = held(real(llama(), "hf-bf16"), Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=3))

    assert kinds.activations_bytes[0] == (3 * 2 * 2048 + 1 * 88_136) * TOKENS


def test_recomputing_every_first_layer_is_full_recompute(real, llama):
    problem = real(llama(), "hf-bf16")
    plans = Plans.of(
        [Plan(recompute=Recompute.FULL), Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=4)]
    )

    needed = estimate(problem, plans).memory.needed_bytes

    assert needed[0] == needed[1]


def test_memory_falls_with_every_recomputed_layer(real, llama):
    problem = real(llama(layers=16), "hf-bf16", sequence=8192)
    modes = [Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=n) for n in range(1, 17)]

    needed = estimate(problem, Plans.of(modes)).memory.needed_bytes

    assert (np.diff(needed) <= 0).all()


def test_the_peak_is_the_largest_phase(real, llama):
    problem = real(llama(), "pytorch", devices=8)
    plans = Plans.of([full_shard(8), Plan(dp=8), full_shard(8, recompute=Recompute.FULL)])

    memory = estimate(problem, plans).memory

    phases = memory.phases
    peak = np.maximum(np.maximum(phases.loss_bytes, phases.backward_bytes), phases.step_bytes)
    assert memory.allocated_bytes.tolist() == peak.tolist()


def test_one_micro_batch_has_no_gradients_before_its_loss(real, llama):
    problem = real(llama(), "pytorch", devices=8)
    one = estimate(problem, Plans.of(full_shard(8))).memory
    two = estimate(problem, Plans.of(full_shard(8, micro_batches=2))).memory

    # accumulation holds 4 N / 8 of gradients when the second loss is computed
    added = two.phases.loss_bytes[0] - one.phases.loss_bytes[0]
    assert added == 4 * parameters(problem) / 8


@pytest.mark.parametrize(("micro_batches", "static_bytes"), [(1, 12), (2, 16)])
def test_need_is_static_and_dynamic_with_their_slack_and_a_reserve(real, llama, micro_batches, static_bytes):
    # at the loss of the first micro-batch no gradient exists; with a second one it does
    problem = real(llama(), "pytorch", devices=8)
    memory = estimate(problem, Plans.of(full_shard(8, micro_batches=micro_batches))).memory
    static = static_bytes * parameters(problem) / 8

    # 3 % on states, 5 % on the rest, 0.8 GB
    expected = 1.03 * static + 1.05 * (memory.allocated_bytes[0] - static) + 0.8e9
    assert memory.needed_bytes[0] == pytest.approx(expected, rel=1e-12)


def sized(problem: Problem, memory_bytes: float) -> Problem:
    group = problem.cluster.groups[0]
    chip = replace(group.accelerator, memory_bytes=memory_bytes)
    return replace(problem, cluster=replace(problem.cluster, groups=(replace(group, accelerator=chip),)))


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.92, Verdict.FITS), (0.94, Verdict.RISKY), (1.03, Verdict.RISKY), (1.05, Verdict.DOES_NOT_FIT)],
)
def test_the_verdict_is_need_over_capacity(real, llama, share, verdict):
    problem = real(llama(), "hf-bf16")
    needed = float(estimate(problem, Plans.of(Plan())).memory.needed_bytes[0])

    found = estimate(sized(problem, needed / share), Plans.of(Plan())).memory.verdict[0]

    assert found == verdict


LOW, HIGH = 0.89, 1.13


def chances(problem: Problem, *needs_over_capacity: float) -> list[float]:
    """Probabilities of running out of memory with an interval from 0.89 to 1.13."""
    known = replace(problem.assumptions, memory_interval_low=LOW, memory_interval_high=HIGH)
    needs = problem.accelerator.memory_bytes * np.array(needs_over_capacity)
    return [float(each) for each in out_of_memory_probability(replace(problem, assumptions=known), needs)]


def test_a_tenth_of_the_runs_lies_beyond_each_end_of_the_memory_interval(real, llama):
    # need = capacity / high: 0.1 die; need = capacity: 0.5; need = capacity / low: 0.1 survive
    assert chances(real(llama()), 1 / HIGH, 1.0, 1 / LOW) == pytest.approx([0.1, 0.5, 0.9], rel=1e-12)


def test_the_ends_of_risky_have_these_chances_of_running_out(real, llama):
    # 0.93: ln(1 / 0.93) = 0.072571; sigma = ln(1.13) / 1.281552 = 0.095367; z = 0.76096; 1 - Phi = 0.22334
    # 1.04: ln(1 / 1.04) = -0.039221; sigma = -ln(0.89) / 1.281552 = 0.090932; z = -0.43132; 1 - Phi = 0.66688
    assert chances(real(llama()), 0.93, 1.04) == pytest.approx([0.22334, 0.66688], abs=5e-6)


def test_far_below_capacity_no_run_dies_and_far_above_all_do(real, llama):
    least, most = chances(real(llama()), 0.01, 100.0)

    assert least < 1e-300
    assert most == 1.0


def test_the_chance_of_running_out_grows_with_the_need(real, llama):
    found = chances(real(llama()), *np.linspace(0.5, 1.5, 101))

    assert all(a < b for a, b in pairwise(found))


def test_eager_logits_strand_a_block_that_their_fp32_copies_cannot_use(real, llama):
    # 14 bytes reserved for 12 allocated: 2/12 of the logits
    problem = real(llama(layers=1, vocab=128_256), "hf-bf16", sequence=16_384)
    memory = estimate(problem, Plans.of(Plan())).memory

    slacked = memory.needed_bytes[0] - 0.8e9
    stranded = memory.kinds.logits_bytes[0] * 2 / 12
    assert memory.phases.loss_bytes[0] == memory.allocated_bytes[0]
    assert memory.reserved_bytes[0] == pytest.approx(slacked + stranded, rel=1e-12)


def test_the_first_pipeline_rank_holds_most_micro_batches(real, llama):
    # 1F1B: rank 0 holds 4 micro-batches of 2 layers
    problem = real(llama(layers=8, ends=False), "megatron-core", devices=4, batch=8)
    plan = Plan(pp=4, schedule=Schedule.ONE_F_ONE_B, micro_batches=8)

    memory = estimate(problem, Plans.of(plan)).memory

    # norms and inputs 2h each, twice; q and out 4qd; k and v 4kv; three tensors 6f; log-sum-exp; statistics
    of_layer = 8 * 2048 + 4 * 2048 + 4 * 512 + 6 * 5632 + 4 * 16 + 8
    assert memory.rank[0] == 0
    assert memory.kinds.activations_bytes[0] == 4 * 2 * of_layer * TOKENS


def test_offloaded_optimizer_states_leave_the_device(real, llama):
    kinds = held(real(llama(), "hf-bf16"), Plan(offload_optimizer=Offload.CPU))

    assert kinds.optimizer_bytes[0] == 0
    assert kinds.step_bytes[0] == 0


def test_host_memory_counts_one_process_for_each_device_of_a_node(real, llama):
    memory = estimate(real(llama(), "pytorch", devices=64), Plans.of(full_shard(64))).memory

    # 8 processes of 3 GB
    assert memory.host_bytes[0] == 8 * 3e9


def test_device_memory_shows_the_context_as_well(real, llama):
    memory = estimate(real(llama(), "hf-bf16"), Plans.of(Plan())).memory

    assert memory.device_bytes[0] == memory.reserved_bytes[0] + 1.75e9


def test_every_kind_of_group_adds_its_buffers_to_what_the_driver_shows(real, llama):
    problem = real(llama(layers=8, ends=False), "megatron-core", devices=8, batch=8)
    plan = Plan(tp=2, dp=2, pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=4)
    memory = estimate(problem, Plans.of(plan)).memory

    assert memory.device_bytes[0] - memory.reserved_bytes[0] == pytest.approx(1.75e9 + 3 * 0.4e9, rel=1e-12)


def test_deepspeed_pipelines_keep_what_their_stages_sent(real, llama):
    # 1F1B: rank 0 holds 4 micro-batches: 2 layer inputs and 1 output of 2h each
    problem = real(llama(layers=8, ends=False), "megatron-deepspeed", gpu="a100-sxm-80gb", devices=4, batch=8)
    plan = Plan(pp=4, schedule=Schedule.ONE_F_ONE_B, micro_batches=8, recompute=Recompute.FULL)

    assert held(problem, plan).activations_bytes[0] == 4 * (2 + 1) * 2 * 2048 * TOKENS


def test_a_flat_step_needs_a_block_of_its_own(real, llama):
    # ZeRO-1 on 4 ranks: 6 N / 4 in one block beside the peak of the loss
    problem = real(llama(vocab=128_256), "megatron-deepspeed", gpu="a100-sxm-80gb", devices=4, sequence=4096)
    memory = estimate(problem, Plans.of(Plan(dp=4, zero=1, shard=4))).memory

    slacked = memory.needed_bytes[0] - 0.8e9
    copies = memory.kinds.logits_bytes[0] * 2 / 12
    assert memory.kinds.step_bytes[0] == 6 * parameters(problem) / 4
    assert memory.reserved_bytes[0] == pytest.approx(slacked + copies + memory.kinds.step_bytes[0], rel=1e-12)


def test_losses_of_varying_length_reserve_2_2_times_the_longest(real, llama):
    problem = real(llama(), "hf-bf16")
    varied = replace(problem, workload=replace(problem.workload, lengths=Lengths(is_packed=False)))
    fixed, mixed = (estimate(each, Plans.of(Plan())).memory for each in (problem, varied))

    # in place of the stranded 16-bit copy, 2 of 12 bytes
    logits = fixed.kinds.logits_bytes[0]
    at_loss = fixed.phases.loss_bytes[0] >= fixed.allocated_bytes[0]
    added = 1.2 * logits - at_loss * logits * 2 / 12
    assert mixed.reserved_bytes[0] - fixed.reserved_bytes[0] == pytest.approx(added, rel=1e-9)
    assert mixed.needed_bytes[0] == fixed.needed_bytes[0]


def test_the_allocator_reserves_no_more_than_the_device_has(real, llama):
    problem = real(llama(), "hf-bf16", batch=8)
    workload = replace(problem.workload, lengths=Lengths(is_packed=False))
    plan = Plans.of(Plan(micro_batch=8))
    needed = float(estimate(problem, plan).memory.needed_bytes[0])
    tight = sized(replace(problem, workload=workload), needed + 1.0e9)

    memory = estimate(tight, plan).memory

    assert memory.device_bytes[0] == pytest.approx(needed + 1.0e9, rel=1e-12)


def test_4_bit_bases_leave_embedding_and_head_in_16_bit(real, llama):
    quantised = 0.5 + 1 / 64 + 4 / 16384
    network = llama()
    ends = 2 * 32000 * 2048 + 2048
    inner = parameters(real(network)) - ends
    lora = Lora(targets=())

    for engine, end_bytes in (
        ("hf-bf16", 2.0),
        ("litgpt", (2.0 + quantised) / 2),
    ):  # LitGPT quantises the head
        problem = real(network, engine, lora=lora)
        problem = replace(problem, workload=replace(problem.workload, method=Method.QLORA))
        assert held(problem).weights_bytes[0] == pytest.approx(
            quantised * inner + end_bytes * ends, rel=1e-12
        )


def test_4_bit_maps_restore_one_matrix_at_a_time(real, llama):
    problem = real(llama(), "hf-bf16", lora=Lora())
    problem = replace(problem, workload=replace(problem.workload, method=Method.QLORA))

    assert held(problem).gathered_bytes[0] == 2 * 2048 * 5632


def test_xla_gathers_a_matrix_and_the_next(real, llama):
    # 10 bytes of the largest: half of the ends here, 32000 x 2048
    problem = real(llama(), "maxtext", gpu="tpu-v5p", devices=8)
    ends = 2 * 32000 * 2048 + 2048

    assert held(problem, full_shard(8)).gathered_bytes[0] == 10 * ends / 2


def test_offloaded_activations_leave_two_layers_on_the_device(real, llama):
    problem = real(llama(layers=16), "hf-bf16")
    plan = Plan(recompute=Recompute.FULL, offload_activations=Offload.CPU)

    assert held(problem, plan).activations_bytes[0] == 2 * 2 * 2048 * TOKENS


def test_casts_of_sharded_weights_live_as_long_as_their_layers(real, llama):
    # FSDP under autocast: 4 + 4 + 8 over n; casts of views are not cached: 2 N, with recompute 2 ends
    problem = real(llama(), "hf-trainer", devices=8)
    ends = 2 * 32000 * 2048 + 2048

    kept, again = (held(problem, full_shard(8, recompute=mode)) for mode in (Recompute.NONE, Recompute.FULL))
    assert states(problem, full_shard(8)) == 16 * parameters(problem) / 8
    assert kept.gathered_bytes[0] - again.gathered_bytes[0] == 2 * (parameters(problem) - ends)
