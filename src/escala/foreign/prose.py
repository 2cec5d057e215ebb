"""Blocks of code in a text (Markdown): each a document of its own, at its lines. Knows no tool's keys."""

import re
from typing import Final

from escala.foreign.documents import Document, Syntax, parsed

FENCE: Final = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL
)
FILE_NAME: Final = re.compile(r"[\w./-]+\.(?:py|json|ya?ml|toml|sh|sbatch)\b")
LANGUAGES: Final = {
    "python": Syntax.PYTHON,
    "py": Syntax.PYTHON,
    "json": Syntax.JSON,
    "jsonc": Syntax.JSON,
    "yaml": Syntax.YAML,
    "yml": Syntax.YAML,
    "toml": Syntax.TOML,
    "bash": Syntax.SHELL,
    "sh": Syntax.SHELL,
    "shell": Syntax.SHELL,
    "console": Syntax.SHELL,
    "zsh": Syntax.SHELL,
}


def read_prose(text: str, file: str) -> list[Document]:
    """The blocks of a text whose language is known; a file name just before or in the first line names it."""
    found: list[Document] = []
    for match in FENCE.finditer(text):
        language, body = match.group(2).lower(), match.group(3)
        syntax = LANGUAGES.get(language)
        if syntax is not None:
            first_line = text.count("\n", 0, match.start(3)) + 1
            found += parsed(
                body, file, syntax, first_line, _name(text, match, body) or f"block at line {first_line}"
            )
    return found


def _name(text: str, match: re.Match[str], body: str) -> str:
    before = text[: match.start()].rstrip().rpartition("\n")[2]
    first = body.partition("\n")[0]
    for line in (first if first.lstrip().startswith(("#", "//")) else "", before):
        named = FILE_NAME.search(line)
        if named:
            return named.group()
    return ""
