"""A module cut into stages: what each holds, what is refused."""

import pytest

torch = pytest.importorskip("torch")

from escala.errors import InvalidInput  # noqa: E402
from escala.model.plan import Compile, Schedule, Split  # noqa: E402
from escala.parallel.cutting import Tie, cut, stage_reasons  # noqa: E402
from escala.parallel.parts import blocks_of, parts_of  # noqa: E402
from parallel.models import model  # noqa: E402
from parallel.oracle import plan  # noqa: E402

pytestmark = pytest.mark.optional
GPIPE, ONE, INTERLEAVED, ZBV = (
    Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZERO_BUBBLE_V
)  # fmt: skip


def piped(**fields):
    return plan(**{"pp": 2, "schedule": ONE, "micro_batches": 4, **fields})


def staged(kind, asked, place=0):
    module = model(kind)
    return cut(module, parts_of(module), asked, place)


@pytest.mark.parametrize("kind", ["llama", "hf-llama"])
def test_stages_together_have_every_name_of_the_whole_once(kind):
    whole = [name for name, _ in model(kind).named_parameters()]

    names = [
        name for place in (0, 1) for chunk in staged(kind, piped(), place).chunks for name in held(chunk)
    ]

    assert names == whole


def held(chunk):
    return [name for name, _ in chunk.named_parameters()]


def test_a_v_of_two_ranks_gives_the_first_both_ends():
    # four blocks in four stages: rank 0 has the stages 0 and 3
    stages = staged("llama", piped(schedule=ZBV, virtual_stages=2))

    assert stages.numbers == (0, 3)
    assert {name.split(".")[2] for name in held(stages.chunks[1]) if "layers" in name} == {"3"}
    assert "lm_head.weight" in held(stages.chunks[1])


def test_layers_are_dealt_as_the_plan_says():
    module = model("llama")
    asked = piped(split=Split.CUSTOM, stage_layers=(1, 3))

    stages = cut(module, parts_of(module), asked, 1)

    assert len(blocks_of(stages.chunks[0], parts_of(module))) == 3


def test_a_stage_in_the_middle_passes_the_stream_through_its_blocks_alone():
    module = model("hf-gpt2")
    stages = cut(module, parts_of(module), piped(pp=4), 1)
    stream = torch.randn(2, 5, 32)

    made = stages.chunks[0](stream, position_ids=torch.arange(5).expand(2, 5))

    torch.testing.assert_close(made, module.transformer.h[1](stream), atol=0, rtol=0)


def test_a_weight_of_both_ends_becomes_two_that_are_told():
    stages = staged("hf-gpt2", piped(), 1)

    assert stages.ties == (Tie(name="transformer.wte.weight", duplicate="lm_head.weight"),)
    assert "lm_head.weight" in held(stages.chunks[0])


def test_a_model_that_does_more_than_its_parts_is_refused():
    module = model("hf-llama")
    stack = module.model
    forward = stack.forward
    # such as models that scale what they embedded: a later stage would scale it again
    stack.forward = lambda *given, inputs_embeds=None, **named: (
        forward(*given, **named)
        if inputs_embeds is None
        else forward(inputs_embeds=2 * inputs_embeds, **named)
    )

    with pytest.raises(InvalidInput, match="together they would not give its answer"):
        cut(module, parts_of(module), piped(), 0)


CUSTOM = piped(split=Split.CUSTOM, stage_layers=(1, 2))
FIVE = piped(schedule=INTERLEAVED, virtual_stages=2, micro_batches=5)
COMPILED = piped(schedule=ZBV, virtual_stages=2, compile=Compile.DEFAULT)
REFUSED = {
    "images": ("hf-vit", piped(), "no language model or plain sequence"),
    "statistics": ("chain-norm", piped(dp=2), "would keep batch statistics of their own"),
    "schedule": ("llama", piped(schedule=Schedule.NONE), "needs a schedule"),
    "virtual": ("llama", piped(virtual_stages=2), "one_f_one_b has 1 stages a rank, not 2"),
    "v": ("llama", piped(schedule=ZBV), "zero_bubble_v has 2 stages a rank, not 1"),
    "few": ("llama", piped(micro_batches=1), "as many micro-batches as stages, 2, and has 1"),
    "rounds": ("llama", FIVE, "5 micro-batches to 2 rounds"),
    "layers": ("llama", CUSTOM, "4 blocks cannot be dealt to 2 stages as 1, 2"),
    "compiled": ("llama", COMPILED, "set compile to off"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_staged_is_refused(name):
    kind, asked, said = REFUSED[name]
    module = _with_batch_norm() if kind == "chain-norm" else model(kind)

    assert said in next(stage_reasons(module, parts_of(module), asked))


def _with_batch_norm():
    blocks = torch.nn.Sequential(*(torch.nn.BatchNorm1d(4) for _ in range(4)))
    return torch.nn.Sequential(torch.nn.Linear(4, 4), blocks)


def test_a_chain_has_its_ends_beside_its_blocks():
    parts = parts_of(model("chain-images"))

    assert parts.is_chain
    assert (parts.first, parts.blocks, parts.last) == (
        ("stem",), ("wide.0", "wide.1", "narrow.0", "narrow.1"), ("head",)
    )  # fmt: skip


def test_a_chain_with_something_between_its_blocks_is_no_chain_that_can_be_cut():
    blocks = [torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(2))) for _ in range(2)]
    module = torch.nn.Sequential(blocks[0], torch.nn.Tanh(), blocks[1])

    assert not parts_of(module).is_chain


@pytest.mark.parametrize("pp", [2, 4])
def test_stages_of_a_chain_one_after_the_other_are_the_chain(pp):
    whole, images = model("chain-images"), torch.randn(2, 3, 32, 32)
    stream, shapes = images, []

    for place in range(pp):
        stages = staged("chain-images", piped(pp=pp), place)
        stream = stages.chunks[0](stream)
        shapes.append(stream.shape)

    torch.testing.assert_close(stream, whole(images), atol=0, rtol=0)
    assert stages.shapes.of(images) == tuple(shapes)
