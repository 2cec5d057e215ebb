import json
from pathlib import Path

import pytest

from escala.training.data.tokens import open_tokens


@pytest.fixture
def books(tmp_path: Path, run) -> str:
    Path("books").mkdir()
    for n in range(300):
        Path("books", f"{n:03}.txt").write_text(f"book {n}")
    return "books"


def test_text_becomes_tokens_that_can_be_opened(run, books: str):
    result = run("data", "prepare", books, "-o", "tokens")

    tokens = open_tokens(Path("tokens"))
    assert result.code == 0
    assert f"{len(tokens):,} tokens to train on" in result.out
    assert "300 documents · 300 files of" in result.out
    assert result.longest <= 80


def test_json_is_the_index_of_the_folder(run, books: str):
    result = run("data", "prepare", books, "-o", "tokens", "--json")

    assert json.loads(result.out) == json.loads(Path("tokens", "tokens.json").read_text())
    assert json.loads(result.out)["schema"] == "escala/tokens@1"


def test_the_share_of_validation_is_kept(run, books: str):
    document = json.loads(run("data", "prepare", books, "-o", "tokens", "--validation", "0.5", "--json").out)

    # 300 draws of 1/2: 150, deviation 8.7
    assert abs(document["documents"]["validation"] - 150) < 5 * 8.7


def test_an_interruption_says_how_to_go_on(run, books: str, monkeypatch):
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("escala.training.data.prepare.write_together", interrupted)

    result = run("data", "prepare", books, "-o", "tokens")

    assert result.code == 130
    assert result.err.split("\n") == [
        "stopped; the same command goes on in tokens",
        "",
        "error: interrupted",
        "",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["books"], "missing option '-o' / '--out'"),
        (["nothing", "-o", "t"], "nothing does not exist; check the path"),
        (["books", "-o", "books/t"], "books/t lies in books, which is read; name a folder outside of it"),
        (["books", "-o", "t", "--validation", "2"], "'2' is no number from 0 to 0.5"),
        (["books", "-o", "t", "--end", "x"], "--end names a token of a tokenizer"),
        (["books", "-o", "t", "--tokenizer", "books/000.txt"], ""),
        (["books", "-o", "t", "--tokenizer", "none"], "none does not exist; check the path"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(run, books: str, arguments: list[str], message: str):
    result = run("data", "prepare", *arguments)

    assert result.code in (2, 3)
    assert result.err.count("\n") == 1
    assert message in result.err
    assert not Path("t").exists()


def test_the_group_alone_shows_its_verbs(run):
    result = run("data")

    assert (result.code, "prepare" in result.out) == (0, True)


def test_settings_of_a_verb_in_a_group_have_its_two_names(run, books: str, monkeypatch):
    Path("escala.toml").write_text("[data.prepare]\nvalidation = 0.5\n")
    monkeypatch.setenv("ESCALA_DATA_PREPARE_FIELD", "body")

    document = json.loads(run("data", "prepare", books, "-o", "tokens", "--json").out)

    assert (document["validation_share"], document["field"]) == (0.5, "body")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data.prepar]\n", "unknown table 'data.prepar': did you mean data.prepare?"),
        ("[data.prepare]\nfeild = 1\n", "unknown key 'feild' in [data.prepare]: did you mean field?"),
        ("[data]\nfield = 1\n", "unknown table 'data.field'"),
        ("data = 1\n", "'data' stands outside a table; write it below [emit] or [train]"),
        ("[data.prepare]\nout = 'x'\n", "out in [data.prepare] can only be given on the command line"),
    ],
)
def test_wrong_settings_of_a_verb_in_a_group_are_named(run, books: str, text: str, message: str):
    Path("escala.toml").write_text(text)

    assert message in run("data", "prepare", books, "-o", "tokens").err


def test_a_wrong_variable_of_a_verb_in_a_group_is_named(run, books: str, monkeypatch):
    monkeypatch.setenv("ESCALA_DATA_PREPARE_FEILD", "body")

    assert "did you mean ESCALA_DATA_PREPARE_FIELD?" in run("data", "prepare", books, "-o", "tokens").err
