"""Seconds of single operations on one device: roofline of a matrix product, attention kernel, memory pass."""

from typing import Final

import numpy as np

from escala.model.assumptions import Assumptions
from escala.model.cluster import Accelerator
from escala.model.columns import F64, I64, Bool, soft_maximum
from escala.model.engine import AttentionKernel
from escala.model.matmuls import Core, Matmul
from escala.model.mixers import ScanWork
from escala.model.operations import attention_s, worked_keys
from escala.model.precision import RECIPES
from escala.model.problem import Problem

FUSED_SOFTMAX_BATCHES: Final = 4


def peak_flop_per_s(accelerator: Accelerator, name: str) -> float | None:
    """Dense peak of one device in a number format; None when it has no such unit."""
    value: float | None = getattr(accelerator, f"{name}_flop_per_s")
    return value


def linear_flop_per_s(problem: Problem, precision: I64, *, is_high: bool = False) -> F64:
    """Attainable speed of large matrix products: peak * share of that peak * level of the software.

    Unsupported formats give the fp32 peak; such plans carry a reject bit. `is_high` is the format of
    attention and head. Shape (n,).
    Source: measured GEMM tables, see the accelerator's entry in the catalog.
    """
    chip = problem.accelerator
    speeds = []
    for recipe in RECIPES:
        name = recipe.high_peak if is_high else recipe.peak
        peak = peak_flop_per_s(chip, name) or chip.fp32_flop_per_s
        speeds.append(peak * gemm_share(chip, name) * problem.engine.time.gemm_level)
    return np.array(speeds)[precision]


def gemm_share(accelerator: Accelerator, name: str) -> float:
    """Share of a format's dense peak that large products reach: 16-bit share * ratio of the format.

    fp32 runs on other units: `fp32_efficiency` is a share of its own.
    """
    if name == "fp32":
        return accelerator.fp32_efficiency
    fp8, tf32 = accelerator.fp8_efficiency, accelerator.tf32_efficiency
    fp4 = fp8 if accelerator.fp4_efficiency is None else accelerator.fp4_efficiency
    return accelerator.gemm_efficiency * {"fp8": fp8, "fp4": fp4, "tf32": tf32}.get(name, 1.0)


def memory_bytes_per_s(accelerator: Accelerator) -> float:
    """Achieved device memory speed: peak * achieved share."""
    return accelerator.memory_bytes_per_s * accelerator.memory_efficiency


def matmul_s(problem: Problem, matmul: Matmul, flop_per_s: F64, element_bytes: F64) -> F64:
    """One matrix product: soft maximum of compute and memory time, plus one kernel launch.

    Compute = 2 M N K / speed + the share of the memory time that tiles do not hide; memory = (M K + K N +
    M N) * bytes / memory speed. Beside compute: share * (1/M + 1/N + 1/K) * bytes * speed / (2 * memory
    speed): small sides cost more where products are fast. Experts each pay the fixed time of a product.
    On a processor that was timed: compute + memory + launches.
    Shapes: (n,). Source: roofline (Williams 2009); share and norm from published step times, see assumptions.
    """
    known = problem.assumptions
    m, k, n = matmul.rows, matmul.inner, matmul.outer
    moved_bytes = (m * k + k * n + m * n) * matmul.count * element_bytes
    launches = matmul.count if matmul.is_grouped else 1.0
    memory_s, measured = moved_bytes / memory_bytes_per_s(problem.accelerator), problem.accelerator.operations
    if measured is not None:
        # the speed is that of operands in the caches; in a step they come from memory first
        return np.asarray(matmul.flop / flop_per_s + memory_s + launches * measured.launch_s, np.float64)
    busy_s = matmul.flop / flop_per_s * _ratio(known, matmul) + known.gemm_memory_exposed * memory_s
    return soft_maximum(busy_s, memory_s, known.gemm_norm) + known.gemm_launch_s * launches


def _ratio(known: Assumptions, matmul: Matmul) -> F64 | float:
    """1 / share of grouped products; a rank's only expert runs as one plain product."""
    if not matmul.is_grouped:
        return 1.0
    return 1.0 / np.where(matmul.count > 1, known.grouped_gemm_ratio, 1.0)


def core_s(problem: Problem, core: Core, flop_per_s: F64, element_bytes: F64) -> tuple[F64, F64]:
    """Attention core forward and backward: work / (speed * share of the kernel generation).

    Flash kernels: work of whole blocks / share * (1 + ramp / keys), backward 2.6 times forward.
    Otherwise two batched products without causal saving, plus passes over the score matrix (bytes of 16 bit;
    twice as many in fp32).
    Shapes: (n,). Source: step-time study on published runs, 2026-11-30; see assumptions and accelerators.
    """
    if problem.accelerator.operations is not None:
        keys = worked_keys(core.all_keys, is_causal=core.keys < core.all_keys)
        return attention_s(problem.accelerator.operations, core.queries * core.heads, keys, core.width)
    kernel = kernel_of(problem)
    known = problem.assumptions
    if kernel in (AttentionKernel.FLASH2, AttentionKernel.FLASH3):
        chip = problem.accelerator
        share = chip.flash3_efficiency if kernel is AttentionKernel.FLASH3 else chip.flash2_efficiency
        assert share is not None  # kernel_of takes no flash kernel that the chip has no share for
        edge = 1.0 + known.flash_block_tokens / core.all_keys
        ramp = 1.0 + known.flash_ramp_tokens / core.block_keys
        narrow = _narrow_ratio(known, core) if kernel is AttentionKernel.FLASH3 else 1.0
        forward_s = core.flop * edge / (flop_per_s * share) * ramp * narrow
        return forward_s, forward_s * known.flash_backward_ratio
    return _score_s(problem, core, flop_per_s, element_bytes, kernel)


def scan_s(problem: Problem, scan: ScanWork, flop_per_s: F64) -> tuple[F64, F64]:
    """Scan of a recurrent mixer, forward and backward: soft maximum of its products and its memory passes.

    Products of chunks run at the share of large products that batched ones reach; a selective scan works on
    units of fp32 instead, three times as much backward. On a processor that was timed: the sum.
    Shapes: (n,). Source: products and bytes counted from the kernels, see `mixers`.
    """
    known, chip = problem.assumptions, problem.accelerator
    passes = pass_s(problem, scan.moved_bytes), pass_s(problem, scan.backward_bytes)
    if chip.operations is not None:
        speed = chip.operations.attention_flop_per_s
        return scan.flop / speed + passes[0], scan.backward_flop / speed + passes[1]
    vector_s = scan.vector_flop / chip.fp32_flop_per_s
    product_flop_per_s = flop_per_s * known.batched_gemm_ratio
    forward_s = np.maximum(scan.flop / product_flop_per_s, vector_s)
    backward_s = np.maximum(scan.backward_flop / product_flop_per_s, 3.0 * vector_s)
    return (
        soft_maximum(forward_s, passes[0], known.gemm_norm),
        soft_maximum(backward_s, passes[1], known.gemm_norm),
    )


def _narrow_ratio(known: Assumptions, core: Core) -> float:
    """Time of a score beside heads 128 wide: its exponential costs as much as some width of its products.

    Kernels of Hopper and later are fast enough to show it. Source: Shah 2024 (FlashAttention-3), figure 5.
    """
    usual = 256.0  # queries and values of heads 128 wide, where the share of a chip was measured
    return (1.0 + known.flash_exponential_width / core.width) / (1.0 + known.flash_exponential_width / usual)


def kernel_of(problem: Problem) -> AttentionKernel:
    """The attention kernel that engine and chip have in common: the engine's, unless the chip is too old."""
    wanted, chip = problem.engine.time.attention_kernel, problem.accelerator
    if wanted is AttentionKernel.FLASH3 and chip.flash3_efficiency is None:
        wanted = AttentionKernel.FLASH2
    if wanted is AttentionKernel.FLASH2 and chip.flash2_efficiency is None:
        wanted = AttentionKernel.FUSED_SOFTMAX
    return wanted


def fits_fused_softmax(batches: F64) -> Bool:
    """Whether a fused softmax kernel takes so many heads * samples of a rank: multiples of four only.

    Source: Megatron-LM, fused_softmax.py, is_kernel_available.
    """
    return np.asarray(batches % FUSED_SOFTMAX_BATCHES == 0, np.bool_)


def _score_s(
    problem: Problem, core: Core, flop_per_s: F64, element_bytes: F64, kernel: AttentionKernel
) -> tuple[F64, F64]:
    known = problem.assumptions
    align = 1.0 if core.is_aligned else known.misaligned_head_ratio
    work = 2.0 * core.score_elements * core.width
    product_s = work / (flop_per_s * known.batched_gemm_ratio) * align
    whole = (kernel is AttentionKernel.UNFUSED) | ~fits_fused_softmax(core.batches)
    passes = np.where(whole, known.unfused_score_ratio, 1.0)
    speed = memory_bytes_per_s(problem.accelerator)
    score_s = core.score_elements * known.score_pass_bytes * (element_bytes / 2.0) * passes / speed
    return product_s + score_s, 2.0 * product_s + score_s * known.score_backward_ratio


def pass_s(problem: Problem, moved_bytes: F64) -> F64:
    """Memory-bound work: bytes read and written / achieved memory speed, of passes where those were timed."""
    measured = problem.accelerator.operations
    speed = memory_bytes_per_s(problem.accelerator) if measured is None else measured.pass_bytes_per_s
    return moved_bytes / speed
