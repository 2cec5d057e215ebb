"""Networks side by side: published pairs, the training ratio from networks alone, refusals."""

import json
from pathlib import Path

import pytest

from escala.catalog import cluster_for
from escala.catalog.equivalents import equal_pairs, equivalents
from escala.cli.app import main
from escala.errors import InvalidInput
from escala.formats.network_toml import network_from_description
from escala.formats.networks import find_network
from escala.model.network import Network
from escala.model.serving import Request
from escala.report.compare_view import COMPARE_SCHEMA, compared, training_flop


def gpt(name: str, layers: int, hidden: int, experts: int = 0) -> Network:
    """A network of DeepSpeed-MoE: GPT, experts in every second layer."""
    keys = {"name": name, "hidden": hidden, "layers": layers, "heads": hidden // 64, "vocab": 51200}
    style = {"positions": 2048, "gated": False, "bias": True, "norm": "layer", "tied": True}
    blocks = [{"every": 2, "experts": experts}] if experts else []
    return network_from_description({"network": {**keys, **style}, "blocks": blocks}, "mine.toml")


DENSE, SPARSE = gpt("6.7B", 32, 4096), gpt("1.3B + 128 experts", 24, 2048, 128)


def test_experts_train_five_times_as_fast_at_equal_quality():
    """6.7B dense 70 samples/s, 1.3B with 128 experts 372, on 128 A100. Source: DeepSpeed-MoE, 2022."""
    ratio = training_flop(DENSE, 2048) / training_flop(SPARSE, 2048)

    assert ratio == pytest.approx(5.0, rel=0.1)


def test_parameters_are_those_of_the_paper():
    counts = [each.parameters for each in compared([DENSE, SPARSE], None, Request()).networks]

    assert [round(each / 1e9, 1) for each in counts] == [6.7, 52.5]


def test_the_first_is_the_measure():
    found = compared([SPARSE, DENSE], None, Request()).networks

    assert found[0].training_ratio == 1.0
    assert found[1].training_ratio == pytest.approx(
        training_flop(SPARSE, 2048) / training_flop(DENSE, 2048), rel=1e-12
    )


def test_both_of_a_published_pair_are_named():
    assert len(equivalents()) == 2
    assert [each.name for each in equal_pairs([SPARSE, DENSE])] == ["1.3b + 128 experts"]
    assert equal_pairs([SPARSE]) == ()


def test_serving_needs_a_machine_and_money_a_price():
    without = compared([DENSE], None, Request()).networks[0]
    where = compared([DENSE], cluster_for("h100-sxm", 1), Request()).networks[0]

    assert without.serving is None
    assert "--gpu" in without.why
    assert where.serving is not None
    assert where.serving.usd_per_million_tokens is None


def test_training_sequences_are_those_that_every_network_takes():
    # 2,048 tokens, or the positions of the shortest table: 448 of Whisper's decoder
    whisper = find_network("whisper-small")

    assert compared([DENSE, SPARSE], None, Request()).sequence_tokens == 2048
    assert compared([DENSE, whisper], None, Request()).sequence_tokens == 448
    with pytest.raises(InvalidInput, match="--seq 2,048: whisper-small takes at most 448 tokens"):
        compared([DENSE, whisper], None, Request(), 2048)


def test_images_are_refused():
    from escala.catalog.networks import network

    with pytest.raises(InvalidInput, match="reads images"):
        compared([network("resnet-50")], None, Request())


def test_the_verb_prints_both_tables_and_the_price(capsys: pytest.CaptureFixture[str]):
    asked = ["compare", "llama-3.1-8b", "mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "2", "--price", "2.5"]

    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "Training" in said
    assert "Serving on 2 × h100-sxm" in said
    assert "USD/Mtok" in said


def test_the_verb_answers_json_and_refuses_unknown_names(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["compare", "llama-3.1-8b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == COMPARE_SCHEMA
    assert main(["compare", "llama-3.1-8c"]) == 2
    assert "llama-3.1-8b" in capsys.readouterr().err
