"""Documentation tells the truth: examples run, generated parts are fresh, names and links exist."""

import contextlib
import importlib
import io
import re
import shlex
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from escala.calibration import read_rows
from escala.cli.app import main
from escala.errors import MissingExtra

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOTTED = re.compile(r"`(escala(?!\.toml`)(?:\.\w+)+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh( no)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRIVATE = (str(ROOT), "prototype", "throw-away")


def name(path: Path) -> str:
    return str(path.relative_to(DOCS))


@cache
def script() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    return importlib.import_module("docs")


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors that a forge makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", script().pages(), ids=name)
def test_page_is_what_the_script_would_write(path: Path):
    assert script().renewed(path) == path.read_text(), "out of date; run scripts/docs"


def test_verdicts_are_of_every_run_that_ran():
    script()
    accuracy = importlib.import_module("docs_accuracy")
    scores = accuracy.found().scores
    line, rows = accuracy.verdict_line().replace("\u00a0", " "), accuracy.verdict_table()

    for ran in (scores.ran, scores.ran_unprinted, scores.all_ran):
        share = f"{ran.does_not_fit_share:.1%}".replace("%", " %")
        assert f"{ran.rows:,}" in line
        assert f"{ran.does_not_fit} ({share})" in line
        assert f"| {ran.rows:,} | {ran.fits:,} | {ran.risky:,} | {ran.does_not_fit:,} |" in rows


@pytest.mark.parametrize("path", [p for p in PAGES if p not in script().pages()], ids=name)
def test_python_blocks_of_other_pages_run(path: Path):
    with contextlib.redirect_stdout(io.StringIO()):
        list(script().run(path.read_text(), str(path)))


@pytest.mark.parametrize("path", script().pages(), ids=name)
def test_commands_of_page_answer(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ESCALA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    script().write_files(path.read_text(), tmp_path)
    wrong = []
    for is_no, lines in COMMANDS.findall(path.read_text()):
        for line in lines.splitlines():
            with contextlib.redirect_stdout(io.StringIO()):
                code = main(shlex.split(line)[1:])
            wrong += [line] if code != bool(is_no) else []

    assert wrong == []


def _exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one; also where the module needs an extra."""
    module, _, attribute = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name in ("cryptography", "torch"):
            return True
        return attribute in dir(importlib.import_module(module))
    except MissingExtra:
        return True
    return True


@pytest.mark.parametrize("path", script().pages(), ids=name)
def test_named_functions_exist(path: Path):
    missing = []
    for dotted in set(DOTTED.findall(path.read_text())):
        missing += [] if _exists(dotted) else [dotted]

    assert missing == []


@pytest.mark.parametrize("path", script().pages(), ids=name)
def test_links_lead_somewhere(path: Path):
    broken = []
    for target, anchor in LINK.findall(prose(path)):
        if "://" in target:
            continue
        page = (path.parent / target).resolve() if target else path
        if not page.exists() or (anchor and anchor[1:] not in anchors(page)):
            broken.append(target + anchor)

    assert broken == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_page_names_no_private_place(path: Path):
    assert [word for word in PRIVATE if word in path.read_text()] == []


def test_every_example_of_a_page_is_run_in_order():
    page = "```python\na = 1\n```\n\ntext\n\n```python\nprint(a + 1)\n```\n"

    assert list(script().run(page, "page")) == ["", "2\n"]


def test_a_file_of_a_page_can_be_read_by_its_examples():
    file = "<!-- file: a.toml -->\n```toml\nb = 1\n```\n"
    code = "```python\nfrom pathlib import Path\nprint(Path('a.toml').read_text())\n```\n"

    assert list(script().run(file + code, "page")) == ["b = 1\n\n"]


@pytest.mark.parametrize("path", script().PICTURES, ids=name)
def test_picture_is_what_the_script_would_draw(path: Path):
    assert script().PICTURES[path]() == path.read_text(encoding="utf-8"), "out of date; run scripts/docs"


def test_a_reason_belongs_to_a_row_once():
    known = tomllib.loads((DOCS / "data" / "worst-rows.toml").read_text())["reason"]
    rows = [row for each in known for row in each["rows"]]

    assert len(rows) == len(set(rows))
    assert set(rows) <= {row.id for row in read_rows().rows}
    assert all(set(each) == {"rows", "text"} and len(each["text"]) > 40 for each in known)
