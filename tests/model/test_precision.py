import pytest

from escala.model.plan import Precision
from escala.model.precision import RECIPES, code, recipe


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
