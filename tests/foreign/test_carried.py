"""Scripts inside YAML: every word stands at its own line and offset of the file."""

import pytest

from escala.foreign.carried import command_of, script_of
from escala.foreign.documents import Document, Syntax, parsed
from escala.foreign.places import Node, at


def tree(text: str) -> tuple[Document, Node]:
    [document] = parsed(text, "x.yaml", Syntax.YAML)
    assert document.tree is not None
    return document, document.tree


def words(document: Document) -> list[list[str]]:
    assert document.script is not None
    return [[word.text for word in command.words] for command in document.script.commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: |\n  A=2\n  torchrun --n=$A \\\n    t.py\n", [["torchrun", "--n=2", "t.py"]]),
        ("run: >\n  torchrun --n=2\n  t.py\n", [["torchrun", "--n=2", "t.py"]]),
        ('run: "A=2; torchrun --n=$A t.py"\n', [["torchrun", "--n=2", "t.py"]]),
        ('run: "cd x\\ntorchrun t.py"\n', [["cd", "x"], ["torchrun", "t.py"]]),
        ("run: 'torchrun t.py'\n", [["torchrun", "t.py"]]),
        ("run: torchrun --n=2\n  t.py\n", [["torchrun", "--n=2", "t.py"]]),
    ],
)
def test_a_script_of_any_style_has_its_commands(text: str, expected: list[list[str]]) -> None:
    document, root = tree(text)

    found = script_of(document, root.table["run"], {})

    assert words(found) == expected
    assert len(found.text) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "command: [torchrun, '--n=2', \"t.py\"]\n",
        "command:\n  - torchrun\n  - --n=2\n  - t.py\n",
        "command:\n- torchrun\nargs:\n- '--n=2'\n- t.py\n",
        "command: [bash, -lc]\nargs:\n  - |\n    torchrun --n=2 t.py\n",
        "command: ['/bin/sh', '-c', 'torchrun --n=2 t.py']\n",
    ],
)
def test_a_list_of_words_is_one_command(text: str) -> None:
    document, root = tree(text)
    given = [word for name in ("command", "args") if (node := at(root, name)) for word in node.items]

    found = command_of(document, given, {})

    assert words(found) == [["torchrun", "--n=2", "t.py"]]
    assert found.script is not None
    for word in found.script.commands[0].words:
        assert text[word.place.start : word.place.end].strip("'\"") == word.text
        assert word.place.line == text.count("\n", 0, word.place.start) + 1
