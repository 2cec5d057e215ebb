import json
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.report.step_view import config_of, network_of, runs_here


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("train:make", True),
        ("gpt2", True),
        ("meta-llama/Llama-3.1-8B", True),
        ("hf:owner/name", True),
        ("missing.json", False),
        ("missing.json.gz", False),
        ("config.json", True),
        ("model", True),
        ("net.json", True),
        ("trace.json", False),
        ("traces", False),
    ],
)
def test_functions_and_networks_run_here_and_all_else_is_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, answer: bool
):
    monkeypatch.chdir(tmp_path)
    config = json.dumps({"model_type": "llama"})
    for name in ("model", "traces"):
        (tmp_path / name).mkdir()
    for name in ("config.json", "net.json", "model/config.json"):
        (tmp_path / name).write_text(config)
    (tmp_path / "trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}')

    assert runs_here(target) is answer


def test_what_is_neither_file_nor_network_is_refused_as_both():
    with pytest.raises(InvalidInput, match=r"there is no trace gpt22 here, .* did you mean gpt2"):
        config_of("gpt22")


def test_a_function_trains_the_network_that_is_named_and_else_an_unknown_one():
    network, why = network_of("train:make", "gpt2")
    assert network is not None
    assert (network.name, why) == ("gpt2", "")
    assert network_of("train:make", None)[1].endswith("name it with --model")


def test_a_network_that_no_formula_describes_has_a_reason(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "quantum", "hidden_size": 8}))

    network, why = network_of(str(file), None)

    assert network is None
    assert "quantum" in why
