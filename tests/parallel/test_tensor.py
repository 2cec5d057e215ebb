"""Tensor and expert ranks against one process, and what they refuse."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from escala.errors import InvalidInput  # noqa: E402
from escala.model.plan import Dispatcher  # noqa: E402
from escala.parallel.parts import parts_of  # noqa: E402
from escala.parallel.refusals import refuse_impossible  # noqa: E402
from parallel.models import model  # noqa: E402
from parallel.oracle import plan  # noqa: E402

pytestmark = pytest.mark.optional
TP = plan(tp=2)
REFUSED = {
    "heads": ("llama", plan(tp=4), "k_proj has 2 heads of 8, which tp=4 does not divide"),
    "no plan": ("hf-vit", TP, "nothing says how ViTForImageClassification is split"),
    "no experts": ("llama", plan(dp=2, ep=2), "no stacked experts"),
    "experts": ("moe", plan(dp=3, ep=3), "8 experts cannot be dealt to 3 ranks"),
    "same tokens": ("moe", plan(tp=2, ep=2), "the same tokens to experts twice; set sp"),
    "fused": ("moe", plan(dp=2, ep=2, dispatcher=Dispatcher.FUSED), "fused dispatch is planned only"),
    "etp": ("moe", plan(dp=2, tp=4, etp=2), "etp=2 is neither 1 nor tp=4"),
    "ranks": ("moe", plan(dp=2, ep=4), "does not divide dp x cp x tp = 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_ranks_cannot_share_is_refused_by_name(name):
    kind, asked, said = REFUSED[name]
    module = model(kind)

    with pytest.raises(InvalidInput, match=said):
        refuse_impossible(module, parts_of(module), asked)


def test_an_unknown_word_of_a_tensor_plan_is_refused():
    module = model("llama")
    parts = replace(parts_of(module), tensor={"model.layers.*.self_attn.q_proj": "mla_kv_a_proj"})

    with pytest.raises(InvalidInput, match=r"says 'mla_kv_a_proj' for model\.layers\.\*\.self_attn\.q_proj"):
        refuse_impossible(module, parts, TP)


def test_a_weight_without_a_word_among_split_ones_is_refused():
    module = model("qk-norm")
    known = parts_of(module)
    words = {pattern: word for pattern, word in known.tensor.items() if not pattern.endswith("q_norm")}

    with pytest.raises(InvalidInput, match=r"self_attn\.q_norm stands among split weights"):
        refuse_impossible(module, replace(known, tensor=words), TP)


def test_a_linear_map_of_another_class_is_refused():
    class Quantized(torch.nn.Linear):
        pass

    module = model("llama")
    module.model.layers[1].mlp.up_proj = Quantized(32, 64, bias=False)

    with pytest.raises(InvalidInput, match="up_proj is Quantized, which tensor ranks do not split"):
        refuse_impossible(module, parts_of(module), TP)
