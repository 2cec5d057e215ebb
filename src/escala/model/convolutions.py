"""Seconds of convolutions on one device: kernels, passes of norms and activations, changes of layout.

Knows shapes and speeds of one device; the sums over a layer are in `layers`.
"""

import numpy as np

from escala.model.columns import F64, Bool, soft_maximum
from escala.model.efficiency import memory_bytes_per_s, pass_s
from escala.model.engine import ConvolutionLayout
from escala.model.matmuls import Matmul, Shape
from escala.model.network import Block, Convolution
from escala.model.operations import convolution_sides_s
from escala.model.plan import Compile, Plans, Precision
from escala.model.precision import compute_bytes
from escala.model.problem import Problem


def convolutions(block: Block) -> list[Convolution]:
    """The convolutions of a layer."""
    return [part for part in block.parts if isinstance(part, Convolution)]


def convolution_s(
    problem: Problem, matmul: Matmul, part: Convolution, flop_per_s: F64, element_bytes: F64
) -> F64:
    """One convolution forward: soft maximum of compute and memory time, plus one kernel launch.

    Compute = 2 * pixels * kernel^2 * inputs / groups * outputs / speed; in groups at most the speed of vector
    units, see `grouped_flop_per_s`. Memory = (pixels * (inputs + outputs) + weights) * bytes / memory speed.
    Kernels choose tiles for their own shapes: no edges. Shapes: (n,). Source: roofline (Williams 2009).
    """
    known, measured = problem.assumptions, problem.accelerator.operations
    moved = matmul.rows * (part.inputs + part.outputs) + matmul.inner * matmul.outer
    if measured is not None and part.groups == 1:
        return convolution_sides_s(measured, matmul.flop, moved * element_bytes)[0]
    speed = np.minimum(flop_per_s, grouped_flop_per_s(problem, part, element_bytes))
    memory_s = moved * element_bytes / memory_bytes_per_s(problem.accelerator)
    return soft_maximum(matmul.flop / speed, memory_s, known.gemm_norm) + known.gemm_launch_s


def convolution_backward_s(
    problem: Problem, matmul: Matmul, part: Convolution, flop_per_s: F64, element_bytes: F64
) -> F64:
    """One convolution backward: twice forward, or at the speed that a bench timed backward."""
    measured = problem.accelerator.operations
    if measured is None or part.groups > 1:
        return 2.0 * convolution_s(problem, matmul, part, flop_per_s, element_bytes)
    moved = matmul.rows * (part.inputs + part.outputs) + matmul.inner * matmul.outer
    return convolution_sides_s(measured, matmul.flop, moved * element_bytes)[1]


def grouped_flop_per_s(problem: Problem, part: Convolution, element_bytes: F64) -> F64:
    """Speed of a convolution in groups: fp32 peak * 4 / bytes * share * input channels of a group.

    Few channels leave tensor units empty, so vector units work, on twice as many numbers in 16 bit; each
    value that is loaded serves only the channels of its group. Without groups there is no such limit.
    Source: published ResNeXt and EfficientNet runs, see assumptions.
    """
    if part.groups == 1:
        return np.full_like(element_bytes, np.inf)
    share = problem.assumptions.grouped_efficiency * part.inputs / part.groups
    return problem.accelerator.fp32_flop_per_s * share * 4.0 / element_bytes


def convolution_passes_s(problem: Problem, plans: Plans, block: Block, shape: Shape) -> F64:
    """Norms, activations, residuals, squeeze-and-excitation and layout: bytes / memory speed.

    Forward and backward: `convolution_passes` over every output, `squeeze_passes` more where it is rescaled,
    less when fused; plus what changes of layout cost. What the kernels themselves move is theirs. On a
    processor that was timed, max-pools count as well: outputs * seconds of one.
    Source: counting kernels of batch norm, ReLU and addition (13 to 16); published runs, see assumptions.
    """
    known, parts = problem.assumptions, convolutions(block)
    outputs = sum(part.output_pixels * part.outputs for part in parts)
    squeezed = sum(part.output_pixels * part.outputs for part in parts if part.is_squeezed)
    fused = np.where(plans.compile != Compile.OFF, problem.engine.time.compiled_passes_ratio, 1.0)
    passes = (known.convolution_passes * outputs + known.squeeze_passes * squeezed) * fused
    moved_bytes = passes * compute_bytes(plans.precision) + layout_bytes(problem, plans, parts)
    return pass_s(problem, shape.samples * moved_bytes) + _pooled_s(problem, shape, parts)


def _pooled_s(problem: Problem, shape: Shape, parts: list[Convolution]) -> F64:
    measured = problem.accelerator.operations
    pooled = sum(part.pooled_pixels * part.outputs for part in parts)
    return shape.samples * pooled * (0.0 if measured is None else measured.pooled_s)


def layout_bytes(problem: Problem, plans: Plans, parts: list[Convolution]) -> F64:
    """Changing the order of pixels and channels around every kernel: bytes * (inputs + outputs) / 2.

    Tensor units want channels last; tensors that lie channels first are turned on the way in and out of the
    three kernels of a convolution: 12 turns of 2 to 4 bytes. Turning moves single numbers, so it costs the
    same in 16 and 32 bit. Source: published runs of both layouts, see assumptions.
    """
    elements = sum(part.output_pixels * (part.inputs + part.outputs) for part in parts) / 2.0
    turned = problem.assumptions.layout_bytes * elements
    return np.where(_turns(problem, plans), turned, 0.0)


def _turns(problem: Problem, plans: Plans) -> Bool:
    layout = problem.engine.time.convolution_layout
    is_first = np.full(len(plans), layout is ConvolutionLayout.CHANNELS_FIRST)
    if layout is ConvolutionLayout.CHANNELS_LAST_IN_16_BIT:
        is_first = compute_bytes(plans.precision) > 2.0
    return np.asarray(is_first & (plans.precision != Precision.FP32), np.bool_)
