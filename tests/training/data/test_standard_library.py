import sysconfig
from pathlib import Path

from escala.training.data.standard_library import standard_library
from escala.training.data.tokens import open_tokens


def test_the_corpus_is_the_sources_without_tests_and_what_was_installed(tmp_path: Path):
    index = standard_library(tmp_path / "corpus", lambda what, left_s: None)

    names = [each.name for each in index.sources]
    assert {"abc.py", "json/decoder.py"} <= set(names)
    assert not [name for name in names if {"test", "tests", "site-packages"} & set(name.split("/"))]
    assert sum(index.tokens.values()) > 5_000_000
    first = (Path(sysconfig.get_path("stdlib")) / names[0]).read_bytes()
    assert open_tokens(tmp_path / "corpus").stretch(0, len(first)).tolist() == list(first)


def test_the_corpus_is_made_once(tmp_path: Path):
    standard_library(tmp_path, lambda what, left_s: None)
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}

    standard_library(tmp_path, lambda what, left_s: None)

    assert before == {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
