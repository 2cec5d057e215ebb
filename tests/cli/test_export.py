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
