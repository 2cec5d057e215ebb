"""Models of transformers that attend through escala give the logits that they give by themselves."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from escala.errors import InvalidInput  # noqa: E402
from escala.parallel.huggingface import adopt  # noqa: E402
from escala.parallel.models import model_of  # noqa: E402
from escala.parallel.parts import parts_of  # noqa: E402

pytestmark = pytest.mark.optional
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
TOKENS = 24
MODELS = {
    "llama": {},
    "mistral": {"sliding_window": 5},
    "qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": {},
    "mixtral": {"num_local_experts": 4, "sliding_window": None},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 24},
    "qwen3_moe": EXPERTS,
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64},
    "gemma": {},
    "gemma2": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma3_text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
}


def built(kind, attention="sdpa", **keys):
    own = {} if kind == "gpt2" else SMALL
    config = transformers.AutoConfig.for_model(kind, **{**own, **MODELS.get(kind, {}), **keys})
    for name in ("attn_pdrop", "embd_pdrop", "resid_pdrop"):
        if kind == "gpt2":
            setattr(config, name, 0.0)
    config._attn_implementation = attention
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_through_escala_are_those_of_the_model_alone(kind):
    # fused attention of torch knows no cap of scores; written-out attention does
    model = built(kind, "eager" if kind == "gemma2" else "sdpa")
    tokens = torch.randint(3, 64, (2, TOKENS))
    alone = model(input_ids=tokens, use_cache=False).logits

    adopt(model, parts_of(model))

    torch.testing.assert_close(model(input_ids=tokens).logits, alone, atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", MODELS)
def test_documents_of_a_row_do_not_see_each_other(kind):
    # a row of 10 and 14 tokens gives the logits of the two run apart
    model = built(kind, "eager")
    adopt(model, parts_of(model))
    tokens = torch.randint(3, 64, (2, TOKENS))
    documents = (torch.arange(TOKENS) >= 10).int().expand(2, -1)
    positions = torch.cat([torch.arange(10), torch.arange(14)]).expand(2, -1)

    packed = model(input_ids=tokens, position_ids=positions, documents=documents).logits

    apart = [model(input_ids=part).logits for part in (tokens[:, :10], tokens[:, 10:])]
    torch.testing.assert_close(packed, torch.cat(apart, dim=1), atol=2e-6, rtol=0)


def test_dropout_is_refused_by_its_key():
    model = built("llama", attention_dropout=0.1)

    with pytest.raises(InvalidInput, match=r"attention_dropout 0\.1"):
        adopt(model, parts_of(model))


def test_a_model_that_recomputes_by_itself_is_refused():
    model = built("llama")
    model.activation_checkpointing_enable()

    with pytest.raises(InvalidInput, match="recomputes by itself"):
        adopt(model, parts_of(model))


def test_blocks_without_attention_are_refused_by_name():
    model = built("llama")
    model.model.layers[1].self_attn = torch.nn.Identity()

    with pytest.raises(InvalidInput, match=r"model\.layers\.1"):
        adopt(model, parts_of(model))


@pytest.mark.parametrize("name", ["conv1d", "indexer"])
def test_what_mixes_tokens_or_selects_keys_beside_attention_is_refused_by_name(name):
    model = built("llama")
    setattr(model.model.layers[1].self_attn, name, torch.nn.Conv1d(4, 4, 1))

    with pytest.raises(InvalidInput, match=rf"beside attention \(model\.layers\.1\.self_attn\.{name}\)"):
        adopt(model, parts_of(model))


def test_sinks_of_attention_are_refused_when_they_are_passed():
    from escala.parallel.huggingface import attend

    model = built("llama")
    heads = torch.zeros(1, 4, 3, 8)

    with pytest.raises(InvalidInput, match="s_aux"):
        attend(model.model.layers[0].self_attn, heads, heads, heads, s_aux=torch.zeros(4))


def test_a_mask_given_to_an_adopted_model_is_refused():
    model = built("llama")
    adopt(model, parts_of(model))
    mask = torch.zeros(1, 1, 4, 4)

    with pytest.raises(InvalidInput, match="documents"):
        model(input_ids=torch.ones(1, 4, dtype=torch.long), attention_mask=mask)


def test_a_config_alone_gives_random_weights_without_dropout(tmp_path):
    keys = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **MODELS["gpt2"]}
    (tmp_path / "config.json").write_text(json.dumps(keys))

    model = model_of(str(tmp_path))

    assert type(model).__name__ == "GPT2LMHeadModel"
    assert model.config.attn_pdrop == model.config.embd_pdrop == model.config.resid_pdrop == 0.0


def test_a_folder_with_weights_gives_those(tmp_path):
    made = built("llama")
    made.save_pretrained(tmp_path)

    read = model_of(str(tmp_path))

    assert torch.equal(read.lm_head.weight, made.lm_head.weight)


def test_a_name_of_the_catalogue_gives_our_decoder():
    with torch.device("meta"):
        model = model_of("gpt2")

    assert type(model).__name__ == "Decoder"


def test_a_config_without_a_class_says_what_to_add(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))

    with pytest.raises(InvalidInput, match="architectures"):
        model_of(str(tmp_path))
