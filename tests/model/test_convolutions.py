"""Convolutions by hand: kernels, groups, passes over activations, changes of layout."""

from dataclasses import replace

import numpy as np
import pytest

from escala.model.convolutions import convolution_passes_s, convolution_s, grouped_flop_per_s
from escala.model.engine import ConvolutionLayout
from escala.model.matmuls import Shape, part_matmuls
from escala.model.network import Block, Convolution, Network, Stack, StackRole
from escala.model.plan import Compile, Plan, Plans, Precision

FIRST, LAST = ConvolutionLayout.CHANNELS_FIRST, ConvolutionLayout.CHANNELS_LAST
LAST_16 = ConvolutionLayout.CHANNELS_LAST_IN_16_BIT
WIDE = Convolution(inputs=512, outputs=512, kernel=3, output_pixels=196)
FLAT = Convolution(inputs=64, outputs=128, kernel=1, output_pixels=3136)
DEPTHWISE = Convolution(inputs=96, outputs=96, kernel=3, groups=96, output_pixels=3136)
ONE, TWO, FOUR = np.ones(1), np.full(1, 2.0), np.full(1, 4.0)


def images(*parts: Convolution) -> Network:
    block = Block(name="layer", parts=parts, norms=0)
    stack = Stack(role=StackRole.CONVOLUTION, hidden=64, blocks=(block,), pattern=(0,), tokens=49)
    return Network(name="images", family="test", stacks=(stack,))


@pytest.fixture
def problem(ideal):
    return assuming(ideal(images(FLAT)), convolution_passes=20.0, squeeze_passes=10.0, layout_bytes=30.0)


def assuming(problem, **values):
    return replace(problem, assumptions=replace(problem.assumptions, **values))


def laid(problem, layout: ConvolutionLayout, **values):
    time = replace(problem.engine.time, convolution_layout=layout, **values)
    return replace(problem, engine=replace(problem.engine, time=time))


def kernel_s(problem, part: Convolution, speed: float, width: np.ndarray) -> float:
    shape = Shape.of(Plans.of(Plan(micro_batch=4)), 1)
    (matmul,) = part_matmuls(part, 64, shape)
    return float(convolution_s(problem, matmul, part, ONE * speed, width)[0])


def passes_s(problem, *parts: Convolution, **plan) -> float:
    plans = Plans.of(Plan(micro_batch=4, **plan))
    block = Block(name="layer", parts=parts, norms=0)
    return float(convolution_passes_s(problem, plans, block, Shape.of(plans, 1))[0])


def test_a_wide_kernel_computes(problem):
    # 2 * 4 images * 196 pixels * 9 * 512 * 512 FLOP at 100 TFLOP/s
    work = 2 * 4 * 196 * 9 * 512 * 512
    assert kernel_s(problem, WIDE, 1e14, TWO) == pytest.approx(work / 1e14, rel=1e-12)


def test_a_kernel_of_one_pixel_moves_its_inputs_outputs_and_weights(problem):
    # 4 * 3136 pixels * (64 + 128) channels and 64 * 128 weights, of 2 bytes, at 1 TB/s
    moved = (4 * 3136 * 192 + 64 * 128) * 2
    assert kernel_s(problem, FLAT, 1e18, TWO) == pytest.approx(moved / 1e12, rel=1e-12)


def test_depthwise_kernels_run_on_vector_units_whatever_the_tensor_peak(problem):
    known = assuming(problem, grouped_efficiency=0.01)

    # 1 % of 10 TFLOP/s for one channel a group; twice as many numbers in 16 bit
    assert grouped_flop_per_s(known, DEPTHWISE, FOUR)[0] == pytest.approx(1e11, rel=1e-12)
    assert grouped_flop_per_s(known, DEPTHWISE, TWO)[0] == pytest.approx(2e11, rel=1e-12)
    work = 2 * 4 * 3136 * 9 * 96
    assert kernel_s(known, DEPTHWISE, 1e14, TWO) == pytest.approx(work / 2e11, rel=1e-12)


def test_groups_of_many_channels_fill_tensor_units_again(problem):
    known = assuming(problem, grouped_efficiency=0.03)
    grouped = replace(WIDE, groups=2)

    # 256 channels a group: 3 % * 256 * 20 TFLOP/s is above 100 TFLOP/s
    work = 2 * 4 * 196 * 9 * 256 * 512
    assert kernel_s(known, grouped, 1e14, TWO) == pytest.approx(work / 1e14, rel=1e-12)


def test_every_output_passes_norm_and_activation(problem):
    # 20 passes over 4 images * 3136 pixels * 128 channels of 2 bytes at 1 TB/s
    moved = 20 * 4 * 3136 * 128 * 2
    assert passes_s(laid(problem, LAST), FLAT) == pytest.approx(moved / 1e12, rel=1e-12)


def test_squeezed_outputs_pass_more_often(problem):
    # 20 + 10 passes
    moved = 30 * 4 * 3136 * 128 * 2
    squeezed = replace(FLAT, is_squeezed=True)
    assert passes_s(laid(problem, LAST), squeezed) == pytest.approx(moved / 1e12, rel=1e-12)


def test_fusion_saves_passes_but_no_change_of_layout(problem):
    fused = laid(problem, FIRST, compiled_passes_ratio=0.5)

    # 20 * 0.5 passes over 4 * 3136 * 128 outputs of 2 bytes; 30 bytes for each of (64 + 128) / 2 channels
    moved = 4 * 3136 * (10 * 128 * 2 + 30 * 96)
    assert passes_s(fused, FLAT, compile=Compile.DEFAULT) == pytest.approx(moved / 1e12, rel=1e-12)


@pytest.mark.parametrize(
    ("layout", "turning"),
    [
        (FIRST, {Precision.TF32, Precision.FP16, Precision.BF16}),
        (LAST, set()),
        (LAST_16, {Precision.TF32}),
    ],
)
def test_tensors_are_turned_where_tensor_units_find_channels_first(problem, layout, turning):
    # 30 bytes for each of 4 images * 3136 pixels * (64 + 128) / 2 channels, in every format
    turned = 30 * 4 * 3136 * 96 / 1e12
    for format_ in (Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16):
        more = passes_s(laid(problem, layout), FLAT, precision=format_)
        more -= passes_s(laid(problem, LAST), FLAT, precision=format_)
        assert more == pytest.approx(turned if format_ in turning else 0.0, rel=1e-9), format_
