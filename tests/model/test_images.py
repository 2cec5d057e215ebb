"""Tokens of images by hand, from the rules of the processors of transformers 5.24."""

import pytest

from escala.catalog import networks
from escala.errors import InvalidInput
from escala.model.flops import forward_flop
from escala.model.images import cut, image_tokens, with_images
from escala.model.network import Grid, StackRole

QWEN = Grid(patch_pixels=16, side_patches=2, least_pixels=256**2, most_pixels=4096**2)
PIXTRAL = Grid(patch_pixels=14, side_patches=2, rounds_up=True, most_side_pixels=1540)
LLAMA = Grid(patch_pixels=14, side_patches=2, tile_pixels=336, most_tiles=16, spare_tokens=1)


@pytest.mark.parametrize(
    ("grid", "height", "width", "streams", "patches"),
    [
        # nearest multiples of 32: 448 x 640
        (QWEN, 450, 650, 1, 28 * 40),
        # 64 x 64 is enlarged to 256 x 256
        (QWEN, 64, 64, 1, 16 * 16),
        # 8,192 x 4,096 is shrunk by √2: 5,792 x 2,896 below
        (QWEN, 8192, 4096, 1, 5792 // 16 * (2880 // 16)),
        # next multiples of 28: 112 x 28
        (PIXTRAL, 100, 20, 1, 8 * 2),
        # the longer side becomes 1,540, the other 770 -> 784
        (PIXTRAL, 3080, 1540, 1, 110 * 56),
        # one tile of 24 x 24 patches; two side by side and one of the whole
        (LLAMA, 336, 336, 1, 576),
        (LLAMA, 300, 600, 3, 576),
        # 4 x 4 tiles is the largest canvas
        (LLAMA, 5000, 5000, 17, 576),
    ],
)
def test_an_image_is_cut_by_the_rule_of_its_processor(grid, height, width, streams, patches):
    made = cut(grid, height, width)

    assert (made.streams, made.patches) == (streams, patches)


def test_images_multiply_the_work_of_the_tower_alone():
    one = with_images(networks.network("qwen3-vl-8b"), images=1, height=448, width=448)
    three = with_images(networks.network("qwen3-vl-8b"), images=3, height=448, width=448)
    none = with_images(networks.network("qwen3-vl-8b"), images=0)

    # 28 x 28 patches, 14 x 14 tokens of the text
    assert (one.stacks[0].tokens, image_tokens(one), image_tokens(three)) == (784, 196, 588)
    products = [forward_flop(network, 4096)[0] for network in (none, one, three)]
    assert products[2] - products[0] == pytest.approx(3 * (products[1] - products[0]), rel=1e-12)
    assert forward_flop(none, 4096)[0] == pytest.approx(
        forward_flop(networks.network("qwen3-8b"), 4096)[0], rel=1e-12
    )


def test_tiles_are_streams_of_their_own():
    # two tiles and the whole, each of 577 tokens, 144 of the text
    tower, projector, _ = with_images(
        networks.network("llama-4-scout"), images=2, height=300, width=600
    ).stacks

    assert (tower.streams_per_sample, tower.tokens, projector.tokens) == (6, 577, 144)


def test_sound_is_held_but_not_run():
    stacks = networks.network("gemma-4-e2b").stacks
    sound = [stack for stack in stacks if stack.role in (StackRole.AUDIO, StackRole.CONVOLUTION)]

    assert [stack.streams_per_sample for stack in sound] == [0, 0]
    assert image_tokens(networks.network("gemma-4-e2b")) == 280


@pytest.mark.parametrize(
    ("name", "height", "message"),
    [
        ("llama-3.1-8b", None, "reads no images beside a text"),
        ("vit-b/16", None, "reads no images beside a text"),
        ("gemma-3-4b", 448, "scales every image to one size"),
    ],
)
def test_images_where_there_is_no_choice_are_refused(name, height, message):
    with pytest.raises(InvalidInput, match=message):
        with_images(networks.network(name), images=1, height=height, width=height)
