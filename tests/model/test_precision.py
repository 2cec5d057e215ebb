from dataclasses import replace

import pytest

from escala.model.estimate import estimate
from escala.model.plan import Plan, Plans, Precision
from escala.model.precision import RECIPES, code, recipe, wide_share


def test_recipes_stand_in_the_order_of_the_codes():
    assert len(RECIPES) == len(Precision)
    assert [each.name.replace("-", "_").upper() for each in RECIPES] == [each.name for each in Precision]


@pytest.mark.parametrize("precision", Precision)
def test_a_recipe_is_found_by_code_and_name(precision):
    assert code(recipe(precision).name) is precision


def test_fp8_without_more_is_tensorwise():
    assert code("fp8") is Precision.FP8_TENSORWISE


@pytest.mark.parametrize(
    ("precision", "bytes_per_input"),
    [
        (Precision.FP32, 4),
        (Precision.BF16, 2),
        (Precision.FP8_ROWWISE, 1),
        (Precision.MXFP8, 1 + 1 / 32),
        (Precision.NVFP4, 4 / 8 + 1 / 16),
    ],
)
def test_bytes_of_a_linear_input_include_its_scales(precision, bytes_per_input):
    # mxfp8: a byte of scale for 32; nvfp4: for 16
    assert recipe(precision).linear_bytes == bytes_per_input


def test_scaled_formats_compute_attention_and_head_in_bf16():
    assert {each.high_peak for each in RECIPES if each.is_scaled} == {"bf16"}


def test_layers_left_in_16_bit_take_their_time_and_memory_there(ideal, llama):
    problem = ideal(llama(), batch=2)
    scaled = Plan(micro_batch=2, precision=Precision.MXFP8)
    plans = Plans.of(
        [scaled, replace(scaled, wide_layers=1), replace(scaled, wide_layers=4), Plan(micro_batch=2)]
    )

    own = estimate(problem, plans)

    # one of four layers is in bf16
    whole, some, none, plain = own.time.matmul_s
    assert some == pytest.approx(0.75 * whole + 0.25 * plain)
    assert none == plain
    assert own.memory.kinds.activations_bytes[2] == own.memory.kinds.activations_bytes[3]


def test_layers_at_one_end_are_all_on_its_stage():
    # 2 of 8 layers, all on the last of 2 stages of 4; no more than a stage has
    plans = [Plan(pp=pp, precision=Precision.NVFP4, wide_layers=2) for pp in (1, 2, 8)]

    assert list(wide_share(Plans.of(plans), 8)) == [0.25, 0.5, 1.0]


def test_formats_that_are_not_scaled_have_no_wide_layers():
    assert list(wide_share(Plans.of(Plan(wide_layers=2)), 8)) == [0.0]
