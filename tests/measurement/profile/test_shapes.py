import msgspec
import pytest

from escala.measurement.profile.shapes import Product, elements_of, product


def work(name: str, dims: list, types: list = ["float", "float"], concrete: list = []) -> Product | None:  # noqa: B006
    return product(name, *(msgspec.Raw(msgspec.json.encode(each)) for each in (dims, types, concrete)))


@pytest.mark.parametrize(
    ("name", "dims", "flop"),
    [
        ("aten::mm", [[2, 3], [3, 5]], 2 * 2 * 3 * 5),
        ("aten::addmm", [[5], [2, 3], [3, 5], [], []], 2 * 2 * 3 * 5),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], 7 * 2 * 2 * 3 * 5),
        ("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]], 7 * 2 * 2 * 3 * 5),
        ("aten::mv", [[2, 3], [3]], 2 * 2 * 3),
        ("aten::dot", [[3], [3]], 2 * 3),
        # batch 1, 4 heads, 8 queries, 16 keys, widths 32 + 32
        (
            "aten::_scaled_dot_product_flash_attention",
            [[1, 4, 8, 32], [1, 4, 16, 32], [1, 4, 16, 32]],
            2 * 4 * 8 * 16 * 64,
        ),
        (
            "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
            [[1, 4, 8, 32], [1, 4, 8, 32], [1, 4, 16, 32], [1, 4, 16, 32]],
            2 * 2 * 4 * 8 * 16 * 64,
        ),
    ],
)
def test_work_of_products_by_hand(name: str, dims: list, flop: float):
    found = work(name, dims)

    assert found is not None
    assert found.flop == flop


def test_work_of_a_convolution_by_hand():
    # 2 images of 3 × 8 × 8, 4 filters of 3 × 3 × 3, stride 2, padding 1: 4 × 4 positions
    found = work(
        "aten::convolution",
        [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []],
        concrete=["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
    )

    assert found is not None
    assert found.flop == 2 * 2 * 4 * 4 * (4 * 3 * 3 * 3)


def test_backward_of_a_convolution_is_its_forward_for_each_gradient():
    dims = [[2, 4, 4, 4], [2, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], [], []]
    plain = ["", "", "", "[4]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    forward = 2 * 2 * 4 * 4 * (4 * 3 * 3 * 3)

    both = work("aten::convolution_backward", dims, concrete=[*plain, "[True, True, True]"])
    first = work("aten::convolution_backward", dims, concrete=[*plain, "[False, True, True]"])

    assert both is not None
    assert first is not None
    assert (both.flop, first.flop) == (2 * forward, forward)


def test_bytes_are_those_of_inputs_and_output_in_their_format():
    # (2 * 3 + 3 * 5 + 2 * 5) * 2 bytes
    found = work("aten::mm", [[2, 3], [3, 5]], ["c10::BFloat16", "c10::BFloat16"])

    assert found is not None
    assert found.moved_bytes == 31 * 2


def test_an_unknown_signature_has_no_work():
    assert work("aten::mm", [[2, 3]]) is None


def test_elements_of_nested_shapes():
    assert elements_of([[2, 3], [[4], [5, 2]]]) == 6 + 4 + 10
