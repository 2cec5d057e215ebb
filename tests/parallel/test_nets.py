"""Our decoder against the description it was built from, and against transformers' Llama."""

import json

import pytest

torch = pytest.importorskip("torch")

from escala.catalog import networks  # noqa: E402
from escala.errors import InvalidInput  # noqa: E402
from escala.model.parameters import network_parameters  # noqa: E402
from escala.parallel.nets.decoder import Decoder  # noqa: E402
from escala.parallel.parts import parts_of  # noqa: E402

pytestmark = pytest.mark.optional
BUILT = ("llama-3.2-1b", "mixtral-8x7b", "gpt2-xl", "qwen3-30b-a3b", "qwen2.5-7b")


@pytest.mark.parametrize("name", BUILT)
def test_a_decoder_has_as_many_parameters_as_its_description(name):
    network = networks.network(name)

    with torch.device("meta"):
        decoder = Decoder(network)

    assert sum(each.numel() for each in decoder.parameters()) == network_parameters(network).total


def test_a_network_that_is_no_plain_decoder_is_refused_with_the_reason():
    with pytest.raises(InvalidInput, match="--model"):
        Decoder(networks.network("bert-base"))


def test_weights_of_our_llama_load_in_transformers_and_give_the_same_logits(tmp_path):
    transformers = pytest.importorskip("transformers")
    from escala.formats.hf import read_network

    keys = {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(keys))
    ours = Decoder(read_network(tmp_path / "config.json"))
    kind = keys.pop("model_type")
    keys.pop("architectures")
    theirs = transformers.LlamaForCausalLM(transformers.AutoConfig.for_model(kind, **keys))
    theirs.load_state_dict(ours.state_dict())
    tokens = torch.randint(64, (2, 16))

    assert torch.allclose(ours(tokens), theirs(tokens).logits, atol=1e-5)


def test_parts_of_our_decoder_by_name():
    with torch.device("meta"):
        decoder = Decoder(networks.network("gpt2"))

    parts = parts_of(decoder)

    assert parts.blocks == tuple(f"model.layers.{place}" for place in range(12))
    assert parts.first == ("model.embed_tokens", "model.embed_positions")
    assert parts.last == ("model.norm", "lm_head")
