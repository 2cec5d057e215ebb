"""Only tools that may know a file are loaded, and none of those that do know it is left out."""

import subprocess
import sys
from pathlib import Path

import pytest

from escala.foreign.documents import Document, Syntax, parsed, read_documents
from escala.foreign.signs import SIGNS, candidates
from escala.foreign.tools import tool_of
from foreign.seeds import SMALL, VALID

ODD = {
    "escapes.json": r'{"\u007aero_optimization": {"stage": 2}}',
    "escapes.yaml": r'"\x62ase_model": m' + "\nmicro_batch_size: 1\nsequence_len: 8\n",
    "variable.sh": "start=torch\n${start}run --nproc-per-node=8 train.py\n",
    "quotes.sh": "'accel'erate \"launch\" --num_processes 8 train.py\n",
    "spelling.sh": "python pretrain_gpt.py --num_layers 4 --hidden_size 8\n",
    "hosts.txt": "```\nworker-1 slots=8\n```\n",
    "hosts.yaml": "worker-1 slots=8\n",
}


def knowing(document: Document) -> set[str]:
    """The tools that know a document when all are asked."""
    asked = set(SIGNS) if document.syntax is Syntax.SHELL else set(SIGNS) - {"slurm"}
    return {name for name in asked if tool_of(name).score(document) > 0}


def documents() -> list[Document]:
    """Those of all seeds, and of files whose words are not written out."""
    small = [each for name, text in (*SMALL.items(), *ODD.items()) for each in _parsed(name, text)]
    return [*small, *(each for path in VALID for each in read_documents(str(path)))]


def _parsed(name: str, text: str) -> list[Document]:
    syntax = {"json": "JSON", "yaml": "YAML", "toml": "TOML", "py": "PYTHON", "sh": "SHELL"}
    return parsed(text, name, Syntax[syntax.get(name.rpartition(".")[2], "PROSE")])


@pytest.mark.parametrize("document", documents(), ids=lambda each: each.name)
def test_every_tool_that_knows_a_document_is_asked(document: Document) -> None:
    assert knowing(document) <= set(candidates(document))


def test_words_that_are_not_written_out_are_known_all_the_same() -> None:
    found = {name: _parsed(name, text) for name, text in ODD.items() if not name.startswith("hosts.t")}

    assert {name: knowing(each[0]) & set(candidates(each[0])) for name, each in found.items()} == {
        "escapes.json": {"deepspeed"},
        "escapes.yaml": {"axolotl"},
        "variable.sh": {"torchrun"},
        "quotes.sh": {"accelerate"},
        "spelling.sh": {"megatron"},
        "hosts.yaml": {"deepspeed"},
    }


def test_a_file_of_one_tool_loads_no_other(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}')
    program = (
        "import sys; from escala.foreign.jobs import read_job; read_job([sys.argv[1]], {}, {}); "
        "print(*sorted(n.split('.')[2] for n in sys.modules if n.startswith('escala.foreign.') "
        "and n.endswith('.reading')))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "ds.json"], capture_output=True, text=True, check=True
    )

    assert result.stdout.split() == ["deepspeed", "transformers"]
