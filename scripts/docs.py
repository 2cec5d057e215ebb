"""Regenerates what documentation pages take from the code: outputs of examples and generated tables.

    scripts/docs            rewrite the pages
    scripts/docs --check    change nothing; exit 1 and name the pages that are out of date

A page is Markdown under docs/. Its ```python blocks run in order in one namespace, in an empty folder that
holds the page's files (a block after `<!-- file: NAME -->`); a ```text block right after one is its output.
Between `<!-- generated: NAME -->` and `<!-- end -->` stands the part of that name (docs_tables.TABLES,
docs_accuracy.SECTIONS, docs_operations.OPERATION_SECTIONS, docs_rules.RULE_SECTIONS,
docs_targets.TARGET_SECTIONS); docs_accuracy.PICTURES are files of their own.
"""

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from docs_accuracy import PICTURES, SECTIONS
from docs_operations import OPERATION_SECTIONS
from docs_rules import RULE_SECTIONS
from docs_tables import TABLES
from docs_targets import TARGET_SECTIONS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OURS = (
    "model",
    "how-to",
    "index.md",
    "accuracy.md",
    "figures.md",
    "bibliography.md",
    "targets/index.md",
    "reference/rules.md",
    "../README.md",
)
PARTS = {**TABLES, **SECTIONS, **OPERATION_SECTIONS, **TARGET_SECTIONS, **RULE_SECTIONS}

BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n+)?^```(?P<kind>\w+)\n(?P<code>.*?)^```\n"
    r"(?P<tail>\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
GENERATED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """All pages that this script keeps up to date."""
    found = [
        [DOCS / name] if name.endswith(".md") else sorted((DOCS / name).glob("**/*.md")) for name in OURS
    ]
    return [path for some in found for path in some]


def renewed(path: Path) -> str:
    """The text of a page with fresh outputs and tables."""
    text = GENERATED.sub(lambda m: m[1] + "\n" + PARTS[m[2]]() + "\n" + m[3], path.read_text())
    outputs = iter(run(text, str(path)))
    return BLOCK.sub(lambda m: _with_output(m, outputs), text)


def run(text: str, name: str) -> Iterator[str]:
    """Outputs of the Python blocks of a page, in order."""
    space: dict[str, object] = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(text, Path(folder))
        for block in BLOCK.finditer(text):
            if block["kind"] == "python":
                out = io.StringIO()
                line = text[: block.start("code")].count("\n")
                code = compile("\n" * line + block["code"], name, "exec")
                with contextlib.redirect_stdout(out):
                    exec(code, space)
                yield out.getvalue()


def write_files(text: str, folder: Path) -> None:
    """The files of a page: blocks after `<!-- file: NAME -->`."""
    for block in BLOCK.finditer(text):
        if block["file"]:
            Path(folder, block["file"]).write_text(block["code"])


def _with_output(block: re.Match[str], outputs: Iterator[str]) -> str:
    if block["kind"] != "python":
        return block[0]
    output = next(outputs)
    if not block["tail"]:
        return block[0]
    return block[0][: block.start("tail") - block.start()] + f"\n```text\n{output}```\n"


def main(arguments: Sequence[str]) -> int:
    """Rewrite, or only check, all pages."""
    stale = []
    texts: dict[Path, Callable[[], str]] = {path: partial(renewed, path) for path in pages()}
    for path, text in (texts | PICTURES).items():
        new = text()
        if not path.exists() or new != path.read_text():
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(new)
    verb = "is out of date; run scripts/docs" if "--check" in arguments else "rewritten"
    for path in stale:
        print(f"{path.relative_to(ROOT)} {verb}")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
