"""`escala export`: what is refused before torch is asked for."""

import pytest


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "out", "--adapter", "--merged"), "--adapter and --merged were given; give one of them"),
        ((), "missing option '-o' / '--out'"),
        (("-o", "out", "--adaptor"), "did you mean --adapter?"),
    ],
)
def test_wrong_options_are_one_line_and_code_2(run, options: tuple[str, ...], said: str):
    result = run("export", "run", *options)

    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1


def test_without_torch_the_command_that_installs_it_is_told(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = run("export", "run", "-o", "out")

    assert result.code == 3
    assert "this runs with PyTorch, which is not installed: pip install 'escala[" in result.err
