"""Sequences dealt to ranks against one process, and the parts they are made of."""

import pytest

torch = pytest.importorskip("torch")


from escala.errors import InvalidInput  # noqa: E402
from escala.model.plan import ContextKind  # noqa: E402
from escala.parallel import attended as written  # noqa: E402
from escala.parallel.attended import Sight, attended, attended_backward, merged  # noqa: E402
from escala.parallel.context import context_reasons, token_table  # noqa: E402
from escala.parallel.parts import parts_of  # noqa: E402
from parallel.models import model  # noqa: E402
from parallel.oracle import plan  # noqa: E402

pytestmark = pytest.mark.optional
RING, GATHER, ULYSSES = ContextKind.RING, ContextKind.ALL_GATHER, ContextKind.ULYSSES


def test_a_rank_has_a_chunk_from_the_beginning_and_one_from_the_end():
    # 8 tokens, 2 ranks: chunks 01 23 45 67; rank 0 has the first and the last, rank 1 those between
    assert token_table(8, 2, RING).tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert token_table(8, 2, ULYSSES).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_all_ranks_see_as_many_keys():
    # causal attention of token i sees i + 1 keys
    table = token_table(64, 4, GATHER)

    assert len({int((places + 1).sum()) for places in table}) == 1


def test_a_sequence_that_is_no_multiple_of_the_chunks_is_refused():
    with pytest.raises(InvalidInput, match="18 tokens cannot be dealt to 2 context ranks in 4 chunks"):
        token_table(18, 2, RING)


def sights():
    mask = torch.rand(2, 1, 6, 10) < 0.6
    mask[0, 0, 3] = False  # a query that sees no key of this part
    return {"all": Sight(scale=0.3), "mask": Sight(scale=0.3, mask=mask)}


@pytest.mark.parametrize("name", ["all", "mask"])
@pytest.mark.parametrize("way", ["kernel", "written out", "capped"])
def test_two_parts_of_a_softmax_merge_to_the_whole_forward_and_backward(name, way, monkeypatch):
    torch.manual_seed(1)
    sight = sights()[name]
    if way != "kernel":  # a cap of a million bends nothing; heads are worked on one by one
        monkeypatch.setattr(written, "SCORES", 1)
        sight = Sight(scale=0.3, mask=sight.mask, softcap=1e6 if way == "written out" else 2.0)
    query, key, value = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 16, 8), torch.randn(2, 2, 16, 8)
    gradient = torch.randn(2, 4, 6, 8)
    first = Sight(scale=0.3, softcap=sight.softcap)  # of the first 6 keys all are seen
    parts = ((slice(6), first), (slice(6, None), sight))

    whole = merged(*(attended(query, key[:, :, keys], value[:, :, keys], each) for keys, each in parts))
    found = [
        attended_backward(gradient, query, key[:, :, keys], value[:, :, keys], whole, each)
        for keys, each in parts
    ]

    leaves = [each.clone().requires_grad_() for each in (query, key, value)]
    scores = leaves[0] @ leaves[1].repeat_interleave(2, 1).transpose(-1, -2) * 0.3
    if way == "capped":
        scores = 2.0 * torch.tanh(scores / 2.0)
    seen = torch.ones(2, 1, 6, 16, dtype=torch.bool)
    if sight.mask is not None:
        seen[..., 6:] = sight.mask
    expected = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ leaves[2].repeat_interleave(2, 1)
    expected.backward(gradient)
    torch.testing.assert_close(whole[0], expected.detach(), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[0][0] + found[1][0], leaves[0].grad, atol=1e-5, rtol=0)
    for place in (1, 2):
        together = torch.cat([each[place] for each in found], 2)
        torch.testing.assert_close(together, leaves[place].grad, atol=1e-5, rtol=0)


REFUSED = {
    "images": ("hf-vit", plan(cp=2), "no language model"),
    "heads": ("hf-llama", plan(cp=3, cp_kind=ULYSSES), "4 heads, 2 of keys"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_context_ranks_cannot_share_is_refused(name):
    kind, asked, said = REFUSED[name]
    module = model(kind)

    assert said in next(context_reasons(module, parts_of(module), asked))


def test_rotary_embeddings_that_follow_the_greatest_position_are_refused():
    module = model("hf-llama")
    module.config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}

    assert "of kind dynamic" in next(context_reasons(module, parts_of(module), plan(cp=2)))
