"""Files as documents: syntax by name or content, faults as findings, no text as one clear error."""

import os
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.foreign.documents import MOST_BYTES, Syntax, read_documents
from escala.foreign.script.code import Code


@pytest.mark.parametrize(
    ("name", "content", "syntax"),
    [
        ("a.json", b"{}", Syntax.JSON),
        ("a.yml", b"a: 1", Syntax.YAML),
        ("a.toml", b"a = 1", Syntax.TOML),
        ("a.py", b"a = 1", Syntax.PYTHON),
        ("job.slurm", b"#SBATCH --nodes=1", Syntax.SHELL),
        ("job", b"#!/bin/bash\nsrun x", Syntax.SHELL),
        ("tool", b"#!/usr/bin/env python3\nx = 1", Syntax.PYTHON),
        ("config", b'\n {"a": 1}', Syntax.JSON),
        ("config", b"a: 1", Syntax.YAML),
    ],
)
def test_the_syntax_is_told_by_name_then_by_content(
    tmp_path: Path, name: str, content: bytes, syntax: Syntax
) -> None:
    (tmp_path / name).write_bytes(content)

    [document] = read_documents(str(tmp_path / name))

    assert (document.syntax, document.findings) == (syntax, ())


@pytest.mark.parametrize(
    ("name", "content", "rule", "line"),
    [
        ("a.json", b'{"a": 1', "json-unreadable", 1),
        ("a.json", b"\xef\xbb\xbf{}", "json-byte-order-mark", 1),
        ("a.yaml", b"a: 1\nb: [", "yaml-unreadable", 2),
        ("a.toml", b"a = 1\nb = [\n", "toml-unreadable", 2),
        ("a.py", b"x = 1\ndef f(:\n", "python-unreadable", 2),
        ("a.yaml", b"a: 1\na: 2\n", "duplicate-key", 2),
    ],
)
def test_what_cannot_be_read_is_found_at_its_line(
    tmp_path: Path, name: str, content: bytes, rule: str, line: int
) -> None:
    (tmp_path / name).write_bytes(content)

    [document] = read_documents(str(tmp_path / name))

    assert [(each.rule, each.place.line) for each in document.findings if each.place] == [(rule, line)]


def test_lines_with_carriage_returns_are_counted_as_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{\r\n "a": 1,\r\n}\r\n')

    [document] = read_documents(str(tmp_path / "a.json"))

    assert [(each.rule, each.place.line) for each in document.findings if each.place] == [
        ("json-trailing-comma", 2)
    ]


def test_python_that_is_nested_beyond_measure_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = " + "-" * 200_000 + "1\n")

    [document] = read_documents(str(tmp_path / "a.py"))

    assert [each.rule for each in document.findings] == ["python-unreadable"]


@pytest.mark.parametrize("content", [b"\x80\x81\x82", b"{" + b" " * MOST_BYTES, "{}".encode("utf-16")])
def test_what_is_no_text_of_bounded_size_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)

    with pytest.raises(InvalidInput, match=r"a\.json"):
        read_documents(str(tmp_path / "a.json"))


def test_a_folder_and_a_loop_of_links_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")

    for path in (tmp_path, tmp_path / "loop.json"):
        with pytest.raises(InvalidInput, match=str(path)):
            read_documents(str(path))


def test_a_pipe_and_a_device_are_refused_before_they_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")

    for path in (tmp_path / "pipe.json", Path("/dev/zero")):
        with pytest.raises(InvalidInput, match="no regular file"):
            read_documents(str(path))


def test_places_of_a_program_count_lines_as_python_does(tmp_path: Path) -> None:
    # form feeds, file separators and U+2028 end lines of a text for str.splitlines, not for Python
    file = tmp_path / "train.py"
    file.write_text('"""a\f b\x1c c\u2028 d."""\nimport torch\n\f\ntorch.save(model)\n', "utf-8")
    document = read_documents(str(file))[0]

    code = Code(document)

    place = code.place(code.calls[0])
    assert (place.line, document.text[place.start : place.end]) == (4, "torch.save(model)")
