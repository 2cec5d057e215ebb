"""What a federated run was, so that others can check it: code, seed, data, and a chain over its rounds.

`manifest.json` stands beside `rounds.jsonl`. Every round's line and weights are fingerprinted, and every
fingerprint holds the one before: nobody can change, drop or repeat a round without changing all that follow.
Who keeps the last one elsewhere can tell. It proves nothing about what happened before a line was written.
"""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

import escala
from escala.errors import InvalidInput
from escala.federated.clientdata import ClientData
from escala.federated.roundrecord import Round
from escala.wholefile import write_whole

SCHEMA: Final = "escala/federate-manifest@1"
MANIFEST, ROUNDS = "manifest.json", "rounds.jsonl"
PACKAGES: Final = ("numpy", "torch", "flwr", "dp-accounting", "scikit-learn")
"""Whose versions decide what a run gives."""


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round in the chain: fingerprints of its line, of the weights after it, and of all so far."""

    round: int
    line_digest: str
    weights_digest: str | None
    chain: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a run that does not change from round to round, and the chain of its rounds.

    `code` fingerprints what ran by name (escala itself, the app's package or its FAB). `refused` are clients
    kept out for their data, with the reason.
    """

    schema: str = SCHEMA
    escala: str
    python: str
    packages: dict[str, str]
    code: dict[str, str]
    name: str
    clients: int
    training: dict[str, Any]
    data: tuple[ClientData, ...] = ()
    refused: dict[str, str] = {}
    start_digest: str | None = None
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What a check of a run found: its manifest, its rounds, and every fault in one line each."""

    manifest: Manifest
    rounds: tuple[Round, ...]
    faults: tuple[str, ...]
    head: str


def manifest_of(
    name: str,
    training: object,
    clients: int,
    *,
    code: Mapping[str, str],
    data: Sequence[ClientData] = (),
    refused: Mapping[int, str] | None = None,
    start_digest: str | None = None,
) -> Manifest:
    """The manifest of a run that begins. `training` is the run's Training; the seed stands in it."""
    return Manifest(
        escala=escala.__version__,
        python=platform.python_version(),
        packages={each: found for each in PACKAGES if (found := _version(each))},
        code={"escala": folder_digest(Path(escala.__file__).parent), **code},
        name=name,
        clients=clients,
        training=msgspec.to_builtins(training),
        data=tuple(data),
        refused={str(client): why for client, why in (refused or {}).items()},
        start_digest=start_digest,
    )


class Notary:
    """Keeps the manifest of a run up to date; `rounds.jsonl` itself is written by who runs the rounds."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Begin a run, or go on with one whose manifest says the same but for first weights and rounds."""
        self._path = folder / MANIFEST
        lines = _lines(folder / ROUNDS)
        if lines and self._path.exists():
            found = read_manifest(self._path)
            manifest = msgspec.structs.replace(manifest, start_digest=found.start_digest)
            if head_of(found) != head_of(manifest):
                raise InvalidInput(
                    f"{self._path} is of another run ({_differing(found, manifest)}); name another folder, or"
                    " go on with the same code, training and data"
                )
            manifest = found
        # a run that was killed may have a line that is not chained yet, or go on from before its last rounds
        self._manifest = msgspec.structs.replace(manifest, links=manifest.links[: len(lines)])
        for line in lines[len(self._manifest.links) :]:
            self._manifest = _longer(self._manifest, line)
        self._write()

    @property
    def manifest(self) -> Manifest:
        """The manifest as it stands."""
        return self._manifest

    def add(self, line: bytes) -> Link:
        """Chain a round's line as it stands in rounds.jsonl, without its line break; write the manifest."""
        self._manifest = _longer(self._manifest, line)
        self._write()
        return self._manifest.links[-1]

    def _write(self) -> None:
        write_whole(self._path, msgspec.json.format(msgspec.json.encode(self._manifest), indent=1) + b"\n")


def linked(manifest: Manifest, line: bytes) -> Link:
    """The next link: fingerprint of the last one, of this line and of the weights that it names."""
    given = _round(line)
    before = manifest.links[-1].chain if manifest.links else head_of(manifest)
    line_digest = bytes_digest(line)
    return Link(
        round=given.round,
        line_digest=line_digest,
        weights_digest=given.weights_digest,
        chain=chained(before, line_digest, given.weights_digest or ""),
    )


def _longer(manifest: Manifest, line: bytes) -> Manifest:
    return msgspec.structs.replace(manifest, links=(*manifest.links, linked(manifest, line)))


def audit(folder: Path, head: str | None = None) -> Audit:
    """Check a run's manifest against its rounds; `head` is the last fingerprint that was kept elsewhere."""
    manifest = read_manifest(folder / MANIFEST)
    lines = _lines(folder / ROUNDS)
    rounds = tuple(_round(line) for line in lines)
    found = [
        *_chain_faults(manifest, lines),
        *_round_faults(manifest, rounds),
        *(each for given in rounds for each in _single_faults(manifest, given)),
    ]
    last = manifest.links[-1].chain if manifest.links else head_of(manifest)
    if head is not None and head != last:
        found.append(f"the chain ends with {last}, not with {head}: rounds were changed, added or dropped")
    return Audit(manifest=manifest, rounds=rounds, faults=tuple(found), head=last)


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist; name the folder of a federated run") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no manifest of a federated run ({error})") from None
    if manifest.schema != SCHEMA:
        raise InvalidInput(f"{path} has schema {manifest.schema}, this escala reads {SCHEMA}")
    return manifest


def head_of(manifest: Manifest) -> str:
    """Fingerprint of everything but the rounds: where the chain begins."""
    return bytes_digest(msgspec.json.encode(msgspec.structs.replace(manifest, links=()), order="sorted"))


def bytes_digest(content: bytes) -> str:
    """Fingerprint of bytes (SHA-256)."""
    return hashlib.sha256(content).hexdigest()


def chained(before: str, *more: str) -> str:
    """Fingerprint of a fingerprint and what follows it."""
    return bytes_digest("\n".join((before, *more)).encode())


def folder_digest(folder: Path, pattern: str = "*.py") -> str:
    """Fingerprint of the files of a folder with their paths, whatever the order on the disk."""
    files = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob(pattern))
    return bytes_digest(
        "\n".join(f"{name} {bytes_digest(path.read_bytes())}" for name, path in files).encode()
    )


def _chain_faults(manifest: Manifest, lines: list[bytes]) -> list[str]:
    """Links that do not follow from their line and the link before."""
    found = []
    if len(lines) != len(manifest.links):
        found.append(
            f"{ROUNDS} has {len(lines)} rounds and the chain {len(manifest.links)}: some are missing"
        )
    so_far = msgspec.structs.replace(manifest, links=())
    for place, (line, link) in enumerate(zip(lines, manifest.links, strict=False), 1):
        expected = linked(so_far, line)
        if link.round != expected.round or link.line_digest != expected.line_digest:
            found.append(f"line {place} of {ROUNDS} was changed after it was written")
        elif link.chain != expected.chain:
            found.append(f"link {place} of the chain does not follow from the one before")
        so_far = msgspec.structs.replace(so_far, links=(*so_far.links, link))
    return found


def _round_faults(manifest: Manifest, rounds: Sequence[Round]) -> list[str]:
    """Every round once, in order; epsilon never falls."""
    numbers = [given.round for given in rounds]
    found = [
        f"round {each} stands {numbers.count(each)} times" for each in set(numbers) if numbers.count(each) > 1
    ]
    if numbers and not found:
        lacking = sorted(set(range(numbers[0], max(numbers) + 1)) - set(numbers))
        found += [f"round {each} is missing" for each in lacking]
        found += ["rounds are not in order"] if numbers != sorted(numbers) else []
        found += [f"the first round is {numbers[0]}, not 1"] if numbers[0] != 1 else []
    spent = [given.epsilon for given in rounds if given.epsilon is not None]
    if any(after < before for before, after in pairwise(spent)):
        found.append("epsilon falls from one round to the next")
    return found


def _single_faults(manifest: Manifest, given: Round) -> list[str]:
    """What a round cannot say: clients that do not exist, that were not asked, or that were kept out."""
    cohort, returned = set(given.cohort), set(given.returned)
    kept_out = sorted(cohort & {int(client) for client in manifest.refused})
    checks: tuple[tuple[bool, str], ...] = (
        (bool(cohort - set(range(manifest.clients))), "asks clients that do not exist"),
        (not returned <= cohort, "counts clients that were not asked"),
        (len(cohort) != len(given.cohort) or len(returned) != len(given.returned), "counts a client twice"),
        (bool(kept_out), f"asks clients kept out for their data ({', '.join(map(str, kept_out))})"),
        (given.up_bytes < 0 or given.down_bytes < 0, "has bytes below zero"),
    )
    return [f"round {given.round} {told}" for is_wrong, told in checks if is_wrong]


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _round(line: bytes) -> Round:
    try:
        return msgspec.json.decode(line, type=Round)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"a line of {ROUNDS} is no round ({error}); the file is damaged") from None


def _differing(found: Manifest, given: Manifest) -> str:
    fields = (name for name in Manifest.__struct_fields__ if name != "links")
    return ", ".join(name for name in fields if getattr(found, name) != getattr(given, name))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
