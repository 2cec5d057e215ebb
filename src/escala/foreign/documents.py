"""A file as text with its tree: which syntax it has, and what of it cannot be read. Knows no tool's keys."""

import ast
import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Final

from escala.errors import InvalidInput, one_line
from escala.foreign.findings import Finding, finding
from escala.foreign.jsontext import read_json
from escala.foreign.places import Lines, Node
from escala.foreign.remarks import LAUNCH, launches
from escala.foreign.shelltext import Script, read_shell
from escala.foreign.tomltext import read_toml
from escala.foreign.yamltext import read_yaml
from escala.inputs import UTF8_BOM, read_bytes, read_stdin, utf8

MOST_BYTES: Final = 1_000_000
"""Size up to which a configuration or script is read; those of people have some kB."""
STDIN: Final = "-"
"""What stands for the text that is piped in."""
TOO_LARGE: Final = "name a configuration or a script, not data or weights"


FENCE: Final = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
IMPORT: Final = re.compile(r"^(import|from)[ \t]+[\w.]+", re.MULTILINE)


class Syntax(StrEnum):
    """How a file is written."""

    JSON = "JSON"
    YAML = "YAML"
    TOML = "TOML"
    PYTHON = "Python"
    SHELL = "shell"
    PROSE = "text with code"


ENDINGS: Final = {
    ".json": Syntax.JSON,
    ".jsonc": Syntax.JSON,
    ".yaml": Syntax.YAML,
    ".yml": Syntax.YAML,
    ".toml": Syntax.TOML,
    ".py": Syntax.PYTHON,
    ".sh": Syntax.SHELL,
    ".bash": Syntax.SHELL,
    ".sbatch": Syntax.SHELL,
    ".slurm": Syntax.SHELL,
    ".md": Syntax.PROSE,
    ".txt": Syntax.PROSE,
    ".rst": Syntax.PROSE,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """One file, or one document of a YAML file, or one block of code in a text.

    `tree` is for JSON, YAML and TOML, `code` for Python, `script` for shell; none where it cannot be read.
    `name` is what the text calls the block, or the file's own name. `part` numbers the jobs that a text tells
    of, 0 for what is a whole file. `is_remark` is true of launch lines that stand in comments.
    """

    file: str
    name: str
    text: str
    syntax: Syntax
    first_line: int = 1
    tree: Node | None = None
    code: ast.Module | None = None
    script: Script | None = None
    findings: tuple[Finding, ...] = field(default=())
    part: int = 0
    is_remark: bool = False

    @property
    def lines(self) -> Lines:
        """Line numbers of offsets into the text."""
        return Lines(self.text, self.file, self.first_line)


def read_documents(file: str) -> list[Document]:
    """The documents of a file; InvalidInput where it is no text of a bounded size."""
    content = _content(file)
    text = utf8(content, file)
    syntax = syntax_of(file, text)
    marked = content.startswith(UTF8_BOM) and syntax is Syntax.JSON
    documents = parsed(text, file, syntax) or [_without_code(text, file)]
    if marked:
        mark = finding("json-byte-order-mark", Lines(text, file).place(0))
        documents = [_with(each, mark) for each in documents]
    return documents


def _without_code(text: str, file: str) -> Document:
    """A text in which nothing is found that could be read."""
    found = finding("text-without-code", Lines(text, file).place(0))
    return Document(file=file, name=FilePath(file).name, text=text, syntax=Syntax.PROSE, findings=(found,))


def whole_text(file: str) -> str:
    """The text of a file, of which documents may be parts."""
    return utf8(_content(file), file)


def _content(file: str) -> bytes:
    if file == STDIN:
        return read_stdin(MOST_BYTES, TOO_LARGE)
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        raise InvalidInput(f"{file} is no regular file (a pipe or a device); name a file")
    return read_bytes(FilePath(file), MOST_BYTES, TOO_LARGE)


def syntax_of(file: str, text: str) -> Syntax:
    """The syntax by the ending of the name, else by how the text begins."""
    known = ENDINGS.get(FilePath(file).suffix.lower())
    if known is not None:
        return known
    start = text.lstrip()[:200]
    if start.startswith("#!") or "\n#SBATCH" in text[:2000]:
        return Syntax.PYTHON if "python" in start.partition("\n")[0] else Syntax.SHELL
    if start.startswith(("{", "[")):
        return Syntax.JSON
    if FENCE.search(text):
        return Syntax.PROSE
    if IMPORT.search(text[:2000]):
        return Syntax.PYTHON
    return Syntax.SHELL if LAUNCH.match(start) else Syntax.YAML


def parsed(text: str, file: str, syntax: Syntax, first_line: int = 1, name: str = "") -> list[Document]:
    """The documents of a text: one, but several of a YAML stream or of a text with blocks of code."""
    called = name or FilePath(file).name
    if syntax is Syntax.PROSE:
        from escala.foreign.prose import read_prose

        return read_prose(text, file)

    def document(
        tree: Node | None = None,
        found: tuple[Finding, ...] = (),
        code: ast.Module | None = None,
        script: Script | None = None,
    ) -> Document:
        return Document(
            file=file,
            name=called,
            text=text,
            syntax=syntax,
            first_line=first_line,
            tree=tree,
            code=code,
            script=script,
            findings=found,
        )

    if syntax is Syntax.YAML:
        return [document(tree, tuple(found)) for tree, found in read_yaml(text, file, first_line)]
    if syntax in (Syntax.JSON, Syntax.TOML):
        tree, findings = (read_json if syntax is Syntax.JSON else read_toml)(text, file, first_line)
        return [document(tree, tuple(findings)), *_remarked(text, file, first_line, called)]
    if syntax is Syntax.SHELL:
        return [document(script=read_shell(text, file, first_line))]
    code, findings = read_python(text, file, first_line)
    return [document(code=code, found=tuple(findings)), *_remarked(text, file, first_line, called)]


def _remarked(text: str, file: str, first_line: int, name: str) -> list[Document]:
    """The launch lines in comments of a program, or of JSON, as a script of their own."""
    lines = launches(text)
    if lines is None:
        return []
    script = read_shell(lines, file, first_line)
    return [
        Document(
            file=file,
            name=f"launch lines in {name}",
            text=lines,
            syntax=Syntax.SHELL,
            first_line=first_line,
            script=script,
            is_remark=True,
        )
    ]


def read_python(text: str, file: str, first_line: int = 1) -> tuple[ast.Module | None, list[Finding]]:
    """The syntax tree of a Python text, which is never run; None where it cannot be read."""
    import warnings

    lines = Lines(text, file, first_line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text), []
    except SyntaxError as error:
        index = min(max((error.lineno or 1) - 1, 0), len(lines.starts) - 1)
        return None, [
            finding("python-unreadable", lines.place(lines.starts[index]), said=one_line(str(error.msg)))
        ]
    except (RecursionError, MemoryError, ValueError) as error:
        said = one_line(str(error)) or "nested too deeply"
        return None, [finding("python-unreadable", lines.place(0), said=said)]


def _with(document: Document, found: Finding) -> Document:
    from dataclasses import replace

    return replace(document, findings=(found, *document.findings))
