from dataclasses import replace

import numpy as np
import pytest

from escala.model.efficiency import core_s, kernel_of, linear_flop_per_s, matmul_s, memory_bytes_per_s, pass_s
from escala.model.engine import AttentionKernel
from escala.model.matmuls import Core, Matmul
from escala.model.plan import Precision

ONE = np.ones(1)


def square(size: float, count: float = 1.0, **marks: bool) -> Matmul:
    return Matmul(rows=ONE * size, inner=ONE * size, outer=ONE * size, count=ONE * count, **marks)


def core(
    keys: float = 512.5,
    all_keys: float = 1024.0,
    is_aligned: bool = True,
    batches: float = 16.0,
    width: float = 128.0,
) -> Core:
    return Core(
        queries=ONE * 1024,
        heads=ONE * 16,
        batches=ONE * batches,
        keys=keys,
        all_keys=all_keys,
        block_keys=ONE * all_keys,
        width=width,
        is_aligned=is_aligned,
    )


def with_chip(problem, **values):
    group = problem.cluster.groups[0]
    other = replace(group, accelerator=replace(group.accelerator, **values))
    return replace(problem, cluster=replace(problem.cluster, groups=(other,)))


def with_kernel(problem, kernel: AttentionKernel):
    return replace(
        problem, engine=replace(problem.engine, time=replace(problem.engine.time, attention_kernel=kernel))
    )


@pytest.fixture
def problem(ideal, llama):
    return ideal(llama())


def test_infinite_memory_speed_leaves_compute(problem):
    quick = with_chip(problem, memory_bytes_per_s=1e30)

    # 2 * 1000^3 FLOP at 100 TFLOP/s = 20 us
    assert matmul_s(quick, square(1000.0), ONE * 1e14, ONE * 2)[0] == pytest.approx(2e-5, rel=1e-12)


def test_infinite_compute_speed_leaves_memory(problem):
    # 3 matrices * 10^6 elements * 2 bytes at 1 TB/s = 6 us
    assert matmul_s(problem, square(1000.0), ONE * 1e30, ONE * 2)[0] == pytest.approx(6e-6, rel=1e-12)


def test_a_product_without_work_costs_its_launch(problem):
    known = replace(problem.assumptions, gemm_launch_s=5e-6)
    endless = with_chip(replace(problem, assumptions=known), memory_bytes_per_s=np.inf)

    assert matmul_s(endless, square(1.0), ONE * np.inf, ONE * 2)[0] == 5e-6


def test_tiles_show_part_of_the_memory_time_beside_the_compute(problem):
    known = replace(problem.assumptions, gemm_memory_exposed=0.5)

    # 20 us of compute + half of 6 us; the soft maximum with 6 us adds nothing at power 100
    seconds = matmul_s(replace(problem, assumptions=known), square(1000.0), ONE * 1e14, ONE * 2)[0]
    assert seconds == pytest.approx(23e-6, rel=1e-9)


def test_grouped_products_pay_their_lower_share(problem):
    known = replace(problem.assumptions, grouped_gemm_ratio=0.8)
    quick = with_chip(replace(problem, assumptions=known), memory_bytes_per_s=1e30)

    seconds = matmul_s(quick, square(1000.0, 4.0, is_grouped=True), ONE * 1e14, ONE * 2)[0]

    # 4 * 20 us / 0.8
    assert seconds == pytest.approx(4 * 2e-5 / 0.8, rel=1e-12)


def test_linear_speed_is_peak_times_shares(problem):
    shares = {"fp8_efficiency": 0.9, "fp32_efficiency": 0.95, "tf32_efficiency": 1.05}
    slower = with_chip(problem, gemm_efficiency=0.8, **shares)
    codes = np.array(
        [Precision.BF16, Precision.FP8_TENSORWISE, Precision.NVFP4, Precision.TF32, Precision.FP32]
    )

    # fp8 200, fp4 400 and tf32 50 TFLOP/s by their ratios to the 16-bit share, fp32 10 TFLOP/s by its own
    speeds = [0.8e14, 2e14 * 0.8 * 0.9, 4e14 * 0.8 * 0.9, 5e13 * 0.8 * 1.05, 0.95e13]
    assert linear_flop_per_s(slower, codes).tolist() == pytest.approx(speeds, rel=1e-12)


def test_attention_and_head_of_a_scaled_format_run_in_bf16(problem):
    codes = np.array([Precision.FP8_BLOCKWISE, Precision.MXFP8])

    assert linear_flop_per_s(problem, codes, is_high=True).tolist() == pytest.approx([1e14, 1e14], rel=1e-12)


def test_flash_attention_by_hand(problem):
    flash = with_kernel(problem, AttentionKernel.FLASH2)

    forward_s, backward_s = core_s(flash, core(), ONE * 1e14, ONE * 2)

    # 2 * 1024 * 16 * 512.5 * 128 FLOP at half of 100 TFLOP/s; backward 2.6 times that
    once = 2 * 1024 * 16 * 512.5 * 128 / 5e13
    assert forward_s[0] == pytest.approx(once, rel=1e-12)
    assert backward_s[0] == pytest.approx(2.6 * once, rel=1e-12)


def test_unfused_attention_computes_the_masked_half_too(problem):
    plain = with_chip(with_kernel(problem, AttentionKernel.FUSED_SOFTMAX), memory_bytes_per_s=1e30)
    known = replace(plain.assumptions, batched_gemm_ratio=0.5)

    forward_s, backward_s = core_s(replace(plain, assumptions=known), core(), ONE * 1e14, ONE * 2)

    # 2 * 1024 * 16 * 1024 * 128 FLOP at half speed; two gradients for one product
    once = 2 * 1024 * 16 * 1024 * 128 / 5e13
    assert forward_s[0] == pytest.approx(once, rel=1e-12)
    assert backward_s[0] == pytest.approx(2 * once, rel=1e-12)


def test_unfused_attention_on_an_endless_chip_is_passes_over_scores(problem):
    known = replace(problem.assumptions, score_pass_bytes=10.0, unfused_score_ratio=6.0)
    plain = replace(with_kernel(problem, AttentionKernel.UNFUSED), assumptions=known)

    forward_s, _ = core_s(plain, core(), ONE * np.inf, ONE * 2)

    # 1024 * 16 * 1024 scores * 10 bytes * 6 passes at 1 TB/s; fp32 scores are twice as wide
    assert core_s(plain, core(), ONE * np.inf, ONE * 4)[0][0] == pytest.approx(2 * forward_s[0], rel=1e-12)
    assert forward_s[0] == pytest.approx(1024 * 16 * 1024 * 60 / 1e12, rel=1e-12)


@pytest.mark.parametrize(
    ("gpu", "wanted", "got"),
    [
        ("h100-sxm", AttentionKernel.FLASH3, AttentionKernel.FLASH3),
        ("a100-sxm-80gb", AttentionKernel.FLASH3, AttentionKernel.FLASH2),
        ("v100-sxm2-32gb", AttentionKernel.FLASH3, AttentionKernel.FUSED_SOFTMAX),
        ("v100-sxm2-32gb", AttentionKernel.FLASH2, AttentionKernel.FUSED_SOFTMAX),
        ("h100-sxm", AttentionKernel.FLASH2, AttentionKernel.FLASH2),
        ("h100-sxm", AttentionKernel.UNFUSED, AttentionKernel.UNFUSED),
    ],
)
def test_an_old_chip_falls_back_to_the_kernel_it_has(real, llama, gpu, wanted, got):
    assert kernel_of(with_kernel(real(llama(), gpu=gpu), wanted)) is got


def test_memory_speed_is_peak_times_share(chip):
    # 1 TB/s * 0.82
    assert memory_bytes_per_s(replace(chip, memory_efficiency=0.82)) == pytest.approx(0.82e12, rel=1e-12)


def test_a_pass_by_hand(problem):
    # 5 GB at 1 TB/s
    assert pass_s(problem, ONE * 5e9)[0] == pytest.approx(5e-3, rel=1e-12)


def test_a_fused_softmax_takes_heads_and_samples_in_fours_only(problem):
    fused = with_kernel(problem, AttentionKernel.FUSED_SOFTMAX)
    plain = with_kernel(problem, AttentionKernel.UNFUSED)

    def seconds(of, batches):
        return core_s(of, core(batches=batches), ONE * 1e14, ONE * 2)[0][0]

    assert seconds(fused, 8.0) < seconds(fused, 6.0)
    assert seconds(fused, 6.0) == seconds(plain, 6.0)


def test_the_only_expert_of_a_rank_runs_as_one_plain_product(problem):
    known = replace(problem.assumptions, grouped_gemm_ratio=0.5)
    quick = with_chip(replace(problem, assumptions=known), memory_bytes_per_s=1e30)

    one = matmul_s(quick, square(1000.0, 1.0, is_grouped=True), ONE * 1e14, ONE * 2)[0]
    two = matmul_s(quick, square(1000.0, 2.0, is_grouped=True), ONE * 1e14, ONE * 2)[0]

    # 20 us; two of them at half the speed
    assert (one, two) == pytest.approx((2e-5, 8e-5), rel=1e-12)


def test_every_expert_is_launched(problem):
    known = replace(problem.assumptions, gemm_launch_s=5e-6)
    endless = with_chip(replace(problem, assumptions=known), memory_bytes_per_s=np.inf)

    assert matmul_s(endless, square(1.0, 8.0, is_grouped=True), ONE * np.inf, ONE * 2)[0] == 8 * 5e-6


def test_narrow_heads_show_the_exponentials_of_newer_kernels(problem):
    known = replace(problem.assumptions, flash_exponential_width=128.0)
    newer = with_kernel(replace(problem, assumptions=known), AttentionKernel.FLASH3)
    older = with_kernel(replace(problem, assumptions=known), AttentionKernel.FLASH2)

    def seconds_of_a_width(of, width):
        return core_s(of, core(width=width), ONE * 1e14, ONE * 2)[0][0] / width

    # heads of 64 against 128: (1 + 128/128) / (1 + 128/256) = 4/3
    assert seconds_of_a_width(newer, 128.0) / seconds_of_a_width(newer, 256.0) == pytest.approx(
        4 / 3, rel=1e-12
    )
    assert seconds_of_a_width(older, 128.0) == pytest.approx(seconds_of_a_width(older, 256.0), rel=1e-12)
