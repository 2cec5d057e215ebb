"""Loads of experts from a share or a file, on a network or refused in one line."""

from pathlib import Path

import pytest

from escala.catalog import cluster_for
from escala.catalog.networks import network
from escala.cli.app import main
from escala.errors import InvalidInput
from escala.formats.expert_loads import expert_loads_of
from escala.model.loads import experts_of, with_loads
from escala.planning.defaults import Question, answerable


def test_a_share_is_a_deviation():
    assert expert_loads_of("15%") == 0.15
    assert expert_loads_of(" 7.5 %") == pytest.approx(0.075, rel=1e-12)


@pytest.mark.parametrize("text", ["1,2,3,4", "1\n2\n3\n4\n", "[1, 2, 3, 4]", "1 2 3;4"])
def test_a_file_has_a_number_for_each_expert(tmp_path: Path, text: str):
    path = tmp_path / "loads.txt"
    path.write_text(text)

    assert expert_loads_of(str(path)) == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [("1,a", "'a' is no number"), ("0,0", "no loads above 0"), ("1,-2", "'-2' is no number")],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, words: str):
    path = tmp_path / "loads.txt"
    path.write_text(text)

    with pytest.raises(InvalidInput, match=words):
        expert_loads_of(str(path))


def test_a_bare_number_and_a_missing_file_are_refused():
    with pytest.raises(InvalidInput, match="write 15%"):
        expert_loads_of("0.15")
    with pytest.raises(InvalidInput, match="does not exist"):
        expert_loads_of("nowhere.txt")


def test_a_network_takes_them_or_says_why_not():
    loaded = with_loads(network("mixtral-8x7b"), (1.0,) * 8)
    deviating = with_loads(network("mixtral-8x7b"), 0.1)

    assert [experts_of(block).loads for block in loaded.main.blocks] == [(1.0,) * 8]
    assert [experts_of(block).load_deviation for block in deviating.main.blocks] == [0.1]
    with pytest.raises(InvalidInput, match="has 3 numbers; mixtral-8x7b has 8 experts"):
        with_loads(network("mixtral-8x7b"), (1.0, 2.0, 3.0))
    with pytest.raises(InvalidInput, match="has no experts"):
        with_loads(network("llama-3.1-8b"), 0.1)


def test_a_question_with_loads_has_them_in_its_network():
    asked = Question(network=network("mixtral-8x7b"), cluster=cluster_for("h100-sxm", 8), expert_loads=0.1)

    problem, _ = answerable(asked)
    assert experts_of(problem.workload.network.main.blocks[0]).load_deviation == 0.1


def test_wrong_loads_on_the_command_line_are_one_line(capsys: pytest.CaptureFixture[str]):
    asked = ["plan", "llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm", "--expert-loads", "10%"]

    assert main(asked) == 2
    assert capsys.readouterr().err == "error: --expert-loads: llama-3.1-8b has no experts\n"
