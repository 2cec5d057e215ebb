"""Texts: code with and without fences is found at its lines, and launch lines say what belongs together."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.foreign.documents import Document, Syntax, parsed, read_documents
from escala.foreign.jobs import read_job
from escala.foreign.places import Node, Place, at
from escala.foreign.readings import Reading, Reference
from escala.foreign.tools import tool_of

PLAIN = """Entrenar con varias GPU

Los gradientes se suman en cada paso. El siguiente programa lo hace.

# ======================
# Primero: los datos
# ======================
import torch
import torch.nn as nn

def train(rank):
    \"\"\"Trains.

not at the margin of the program, but of its docstring
    \"\"\"
    model = nn.Linear(4, 4)

    model = model.cuda(rank)

# Lanzar con: torchrun --nproc_per_node=4 train.py
# O: python -m torch.distributed.launch --nproc_per_node=4 train.py

# ======================
# Segundo
# ======================
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()

Y la configuración:

# ds.json
{
    "zero_optimization": {"stage": 2}
}
# Lanzar: deepspeed --num_gpus=8 train.py --deepspeed other.json

Fin: no hay más.
"""
FENCED = """# Train

First `ds.json`:

```json
{"train_batch_size": 64}
```

then the script `train.py`:

~~~python
import torch
~~~

and a tree of files:

```text
import nothing
```

```
torchrun --nproc-per-node 8 train.py --deepspeed ds.json
```
"""


def documents(folder: Path, text: str) -> list[Document]:
    (folder / "a.md").write_text(text)
    return read_documents(str(folder / "a.md"))


def lines(document: Document) -> tuple[int, int]:
    rows = [number for number, row in enumerate(document.text.split("\n"), 1) if row.strip()]
    return rows[0], rows[-1]


def test_code_without_fences_is_found_with_its_lines_and_launch_lines(tmp_path: Path) -> None:
    found = documents(tmp_path, PLAIN)

    assert [(each.syntax, lines(each), each.is_remark, each.part) for each in found] == [
        (Syntax.PYTHON, (5, 21), False, 1),
        (Syntax.SHELL, (20, 21), True, 1),
        (Syntax.PYTHON, (23, 28), False, 3),
        (Syntax.JSON, (32, 35), False, 4),
        (Syntax.SHELL, (36, 36), True, 4),
    ]
    assert found[3].name == "ds.json"


def test_blocks_whose_files_a_launch_line_names_are_one_job(tmp_path: Path) -> None:
    found = documents(tmp_path, FENCED)

    assert [(each.syntax, lines(each), each.name, each.part) for each in found] == [
        (Syntax.JSON, (6, 6), "ds.json", 1),
        (Syntax.PYTHON, (12, 12), "train.py", 1),
        (Syntax.SHELL, (22, 22), "block at line 22", 1),
    ]


def test_places_in_a_block_are_those_of_the_whole_text(tmp_path: Path) -> None:
    tree = documents(tmp_path, FENCED)[0].tree

    node = at(tree, "train_batch_size")

    assert isinstance(node, Node)
    assert FENCED[node.place.start : node.place.end] == "64"
    assert node.place.line == 6


@pytest.mark.parametrize(
    "text",
    [
        "for example this: a sentence.\n",
        "Call f(x) = 2x for each x.\n",
        "Note (see below): import duties are high.\nfrom there on import rises.\n",
        "# A heading\n\nThe text = more text.\n\n# Another\n",
        "{not json} in a sentence\n",
        "with care:\n\nwhile reading:\n",
    ],
)
def test_prose_is_no_code(tmp_path: Path, text: str) -> None:
    [document] = documents(tmp_path, text)

    assert [each.rule for each in document.findings] == ["text-without-code"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# ds_config.json\n{\n}\n", ["json-comment-heading"]),
        ("```json\n// ds_config.json\n{}\n```\n", ["json-comment-heading"]),
        ("# ds_config.json\n{\n# none\n}\n", ["json-comment-heading", "json-comment"]),
        ("```json\n// settings\n{}\n```\n", ["json-comment"]),
    ],
)
def test_a_first_line_that_names_the_file_of_a_block_is_told_apart(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    found = [each.rule for document in documents(tmp_path, text) for each in document.findings]

    assert found == expected


@pytest.mark.parametrize(("name", "expected"), [("b.json", ["file-called-otherwise"]), ("a.json", [])])
def test_a_file_that_the_launch_line_calls_otherwise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: list[str]
) -> None:
    def launching(document: Document, version: str | None) -> Reading:
        place = Place(file=document.file, line=1)
        reading = torchrun(document, version)
        return replace(reading, references=(Reference(file=name, place=place, said="--config"),))

    torchrun = tool_of("torchrun").read
    monkeypatch.setattr(tool_of("torchrun"), "read", launching)
    (tmp_path / "a.md").write_text("```json\n{}\n```\n\n".replace("{", "# a.json\n{") + "torchrun a.py\n")

    job = read_job([str(tmp_path / "a.md")], {}, {})

    assert [each.rule for each in job.findings if each.rule != "json-comment-heading"] == expected


def test_jobs_of_a_text_do_not_contradict_each_other(tmp_path: Path) -> None:
    block = '```json\n{{"train_batch_size": {}}}\n```\n\nor\n\n'
    (tmp_path / "a.md").write_text(block.format(4) + block.format(8))

    job = read_job([str(tmp_path / "a.md")], {}, {})

    assert [part.value("global_batch") for part in job.parts] == [4, 8]
    assert job.findings == ()
    assert job.value("global_batch") is None


def test_the_only_job_of_a_text_is_the_job(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text('```json\n{"train_batch_size": 4}\n```\n')

    job = read_job([str(tmp_path / "a.md")], {}, {})

    assert (job.value("global_batch"), job.parts) == (4, ())


def test_a_launch_line_in_a_comment_counts_where_nothing_else_says(tmp_path: Path) -> None:
    script = '"""Trains.\n\n    $ torchrun --nproc-per-node 4 \\\n        a.py\n"""\nimport torch\n'
    (tmp_path / "a.py").write_text(script)
    (tmp_path / "run.sh").write_text("torchrun --nproc-per-node 8 a.py\n")

    alone = read_job([str(tmp_path / "a.py")], {}, {})
    both = read_job([str(tmp_path / name) for name in ("a.py", "run.sh")], {}, {})

    assert (alone.value("devices"), both.value("devices")) == (4, 8)
    assert [each.rule for each in both.findings] == []


@given(st.text(alphabet="`~\n ab=(){}[]:#\"'\\", max_size=300))
def test_any_text_is_read(text: str) -> None:
    for document in parsed(text, "a.md", Syntax.PROSE):
        assert document.part > 0


def test_a_long_text_of_beginnings_ends_in_time() -> None:
    for text in ("{\n" * 200_000, "```a\n" * 100_000, "# " + "A=1 " * 100_000, "f(\n" * 100_000):
        assert parsed(text, "a.md", Syntax.PROSE) == []
