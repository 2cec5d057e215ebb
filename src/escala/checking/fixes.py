"""Corrected copies of a job's files: edits of findings and of one change, each whole or left out.

A copy stands beside its file as NAME.fixed.ENDING; nothing is ever overwritten.
"""

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput
from escala.foreign.documents import Document, Syntax, parsed, whole_text
from escala.foreign.findings import Edit, Finding
from escala.foreign.jobs import Job
from escala.wholefile import write_together

TWICE: Final = "duplicate-key"
SIGN: Final = re.compile(r"[\"']?[ \t]*[:= \t][ \t]*[\"']?")
"""What stands between a name and its value."""
BATCHES: Final = ("global_batch", "micro_batch", "accumulation")
"""Facts that decide how many samples a step has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Edits that belong together, and what for; of the smallest change, or the correction of a finding."""

    title: str
    edits: tuple[Edit, ...]
    is_correction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """New texts by the path of their copy, the difference to the files, what was done and what left out."""

    texts: Mapping[str, str]
    diff: str
    done: tuple[str, ...]
    left_out: tuple[str, ...]


def wishes(findings: Iterable[Finding], change: Wish | None) -> list[Wish]:
    """Edits of findings in their order, then those of the smallest change."""
    found = [
        Wish(title=f"{each.rule}: {each.fix}", edits=each.edits, is_correction=True)
        for each in findings
        if each.edits
    ]
    return [*found, *([change] if change is not None and change.edits else [])]


def fixed(job: Job, wanted: Iterable[Wish]) -> Fixed:
    """The files of a job with all wishes that do not touch each other."""
    documents = _whole_documents(job)
    accepted: dict[str, list[Edit]] = {}
    done: list[str] = []
    left_out: list[str] = []
    for wish in wanted:
        fault = _fault(wish, documents, accepted)
        if fault:
            left_out.append(f"{wish.title} ({fault})")
            continue
        for edit in wish.edits:
            if edit not in accepted.setdefault(edit.file, []):
                accepted[edit.file].append(edit)
        done.append(f"{wish.title}{_batches(job, wish, documents)}")
    texts = {file: _edited(documents[file].text, edits) for file, edits in accepted.items()}
    diff = "".join(_diff(documents[file].text, text, file) for file, text in texts.items())
    return Fixed(
        texts={copy_of(file): text for file, text in texts.items()},
        diff=diff,
        done=tuple(done),
        left_out=tuple(left_out),
    )


def _whole_documents(job: Job) -> dict[str, Document]:
    """Documents that are whole files; of the blocks of a text the text, in which their offsets count."""
    found: dict[str, Document] = {}
    jobs = (job, *job.parts)
    documents = [reading.document for each in jobs for reading in each.readings]
    for document in (*documents, *(each for one in jobs for each in one.unread)):
        if document.part and document.file not in found:
            found[document.file] = _whole(document)
        elif document.first_line == 1 and document.name == Path(document.file).name:
            found.setdefault(document.file, document)
    return found


def _whole(block: Document) -> Document:
    """The text that a block stands in, with all that is found as it is read."""
    text = whole_text(block.file)
    return replace(block, text=text, syntax=Syntax.PROSE, findings=_read_findings(text, block.file))


def _read_findings(text: str, file: str, syntax: Syntax = Syntax.PROSE) -> tuple[Finding, ...]:
    return tuple(found for each in parsed(text, file, syntax) for found in each.findings)


def _fault(wish: Wish, documents: Mapping[str, Document], accepted: Mapping[str, list[Edit]]) -> str:
    """Why a wish cannot be done; empty where it can."""
    for edit in wish.edits:
        document = documents.get(edit.file)
        if document is None or not 0 <= edit.start <= edit.end <= len(document.text):
            return "it does not stand in the file as such; change it there"
        if any(_overlap(edit, other) for other in accepted.get(edit.file, [])):
            return "another correction changes the same place; check again after it"
        together = [*accepted.get(edit.file, []), *(each for each in wish.edits if each.file == edit.file)]
        if _is_broken(_edited(document.text, together), document):
            return "the file could not be read any more, or would say something twice"
    return ""


def _batches(job: Job, wish: Wish, documents: Mapping[str, Document]) -> str:
    """Which counts of samples a correction changes, which no reader of its title would expect."""
    said = []
    for edit in wish.edits if wish.is_correction else ():
        for fact in (job.facts[name] for name in BATCHES if name in job.facts):
            between = documents[edit.file].text[fact.place.end : edit.start]
            is_value = fact.place.start == edit.start or (
                fact.place.end <= edit.start and SIGN.fullmatch(between)
            )
            if fact.place.file == edit.file and is_value:
                said.append(f"{fact.name.replace('_', ' ')} {fact.value} → {edit.text}")
    return f"; {', '.join(said)}" if said else ""


def _overlap(one: Edit, other: Edit) -> bool:
    """Whether two edits change the same letters, or write at the same place; the same edit twice is one."""
    touches = one.start < other.end and other.start < one.end
    return one != other and (touches or one.start == other.start)


def _edited(text: str, edits: Iterable[Edit]) -> str:
    for edit in sorted(dict.fromkeys(edits), key=lambda each: (each.start, each.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _is_broken(text: str, document: Document) -> bool:
    """Whether a text cannot be read that could be read before, or says more than once what it said once."""
    before, after = (
        Counter(each.rule for each in _read_findings(each, document.file, document.syntax))
        for each in (document.text, text)
    )
    return any(rule == TWICE or rule.endswith("-unreadable") for rule in after - before)


def _diff(before: str, after: str, file: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), file, copy_of(file)
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def copy_of(file: str) -> str:
    """The path of a corrected copy: ds.json becomes ds.fixed.json."""
    path = Path(file)
    return str(path.with_name(f"{path.stem}.fixed{path.suffix}"))


def write_fixed(given: Fixed) -> None:
    """Write all copies or none; one that is there already is refused."""
    there = [path for path in given.texts if os.path.lexists(path)]
    if there:
        raise InvalidInput(f"{there[0]} is there already; rename or delete it, then ask for --fix again")
    write_together({Path(path): text.encode("utf-8") for path, text in given.texts.items()})
