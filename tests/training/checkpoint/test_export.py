"""An exported checkpoint is what transformers loads."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from escala.errors import InvalidInput  # noqa: E402
from escala.training.checkpoint import (  # noqa: E402
    Checkpoints,
    Form,
    TrainState,
    checkpoint_of,
    export,
    latest,
)


def saved(folder: Path, is_tied: bool = False) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=is_tied,
    )
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters())
    state = TrainState(chunks=(model,), optimizer=optimizer, step=1, config=model.config.to_dict())
    Checkpoints(folder).save(state)
    return model


@pytest.mark.parametrize("is_tied", [False, True])
def test_transformers_computes_the_same_logits(tmp_path: Path, is_tied: bool):
    model = saved(tmp_path / "run", is_tied)
    tokens = torch.arange(8)[None]

    export(latest(tmp_path / "run"), tmp_path / "out")

    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_large_weights_are_split_with_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = saved(tmp_path / "run")
    monkeypatch.setattr("escala.training.checkpoint.weights.SHARD", "5KB")

    export(latest(tmp_path / "run"), tmp_path / "out")

    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(model.state_dict())
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)


def test_nothing_is_written_over(tmp_path: Path):
    saved(tmp_path / "run")

    with pytest.raises(InvalidInput, match="is there already"):
        export(latest(tmp_path / "run"), tmp_path)


def test_a_network_of_ours_brings_its_description(tmp_path: Path):
    model = torch.nn.Linear(2, 2)
    state = TrainState(
        chunks=(model,), optimizer=torch.optim.SGD(model.parameters()), config={"name": "tiny", "layers": 1}
    )
    Checkpoints(tmp_path / "run").save(state)

    export(latest(tmp_path / "run"), tmp_path / "out")

    assert json.loads((tmp_path / "out" / "network.json").read_text()) == {"name": "tiny", "layers": 1}


def test_a_network_without_description_is_refused(tmp_path: Path):
    model = torch.nn.Linear(2, 2)
    Checkpoints(tmp_path).save(TrainState(chunks=(model,), optimizer=torch.optim.SGD(model.parameters())))

    with pytest.raises(InvalidInput, match="no description of its network"):
        export(latest(tmp_path), tmp_path / "out")


def test_adapters_are_not_written_as_a_model(tmp_path: Path):
    model = torch.nn.ModuleDict({"lora_A": torch.nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(model.parameters())
    Checkpoints(tmp_path).save(TrainState(chunks=(model,), optimizer=optimizer, config={"name": "tiny"}))

    with pytest.raises(InvalidInput, match="--adapter, or added to the weights with --merged"):
        export(latest(tmp_path), tmp_path / "out")
    with pytest.raises(InvalidInput, match="does not say how its adapters are scaled"):
        export(latest(tmp_path), tmp_path / "out", Form.MERGED)


def test_a_model_has_no_adapters_to_write(tmp_path: Path):
    saved(tmp_path / "run")

    with pytest.raises(InvalidInput, match="without adapters; leave --adapter out"):
        export(latest(tmp_path / "run"), tmp_path / "out", Form.ADAPTER)


@pytest.mark.parametrize("given", ["run", "run/checkpoints", "run/checkpoints/step-00000001"])
def test_a_run_its_checkpoints_and_one_of_them_name_the_same(tmp_path: Path, given: str):
    saved(tmp_path / "run" / "checkpoints")

    assert checkpoint_of(tmp_path / given) == tmp_path / "run" / "checkpoints" / "step-00000001"


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="holds no whole checkpoint"):
        checkpoint_of(tmp_path)
