"""Errors that a person can act on. Knows the error tree and exit codes; knows nothing of what raised them.

EscalaError
├── InvalidInput     wrong input: what was given, what is allowed, what to do       exit 2
└── MissingExtra     an optional part is not installed, with the command            exit 3
"""

import difflib
from collections.abc import Iterable


class EscalaError(Exception):
    """Base of every error that escala raises on purpose; its text is one clear line."""

    exit_code = 2


class InvalidInput(EscalaError):
    """Wrong input: says what was given, what is allowed and what to do."""


class MissingExtra(EscalaError):
    """An optional part is not installed: says the command that installs it."""

    exit_code = 3


def near(given: str, allowed: Iterable[str], *, limit: int = 3) -> list[str]:
    """Names that resemble the given one, best first; case and punctuation are ignored."""
    plain = {_plain(name): name for name in allowed}
    close = difflib.get_close_matches(_plain(given), plain, n=limit, cutoff=0.6)
    inside = [key for key in plain if _plain(given) and _plain(given) in key and key not in close]
    return [plain[key] for key in (close + inside)[:limit]]


def misspelt(given: str, allowed: Iterable[str]) -> str | None:
    """The one name of which the given one is a slip: one wrong, missing, added or swapped letter in four.

    None where no name is so near, or several are equally: then a person has to choose. Case and punctuation
    count as nothing; names of fewer than four letters are never slips of others.
    """
    most = len(_plain(given)) // 4
    slips = sorted((_slips(_plain(given), _plain(name), most), name) for name in allowed) if most else []
    if not slips or slips[0][0] > most or (len(slips) > 1 and slips[1][0] == slips[0][0]):
        return None
    return slips[0][1]


def _slips(one: str, other: str, most: int) -> int:
    """Letters to change, leave out, add, or swap with their neighbour, to come from one text to another.

    Optimal string alignment distance (Damerau 1964), at least `most` + 1 where that is exceeded.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def unknown(what: str, given: str, allowed: Iterable[str], hint: str) -> InvalidInput:
    """The error for a name that is not known: near names first, then where the list is."""
    close = near(given, allowed)
    suggestion = f"did you mean {' or '.join(close)}? " if close else ""
    return InvalidInput(f"unknown {what} '{one_line(given)}': {suggestion}{hint}")


def one_line(text: str, limit: int = 80) -> str:
    """Text as it may stand in a message: control characters and line breaks replaced, cut to the limit."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def spoken(given: object, limit: int = 80) -> str:
    """A value of a file as a person reads it there: nothing (null), true, 3, 'text', a list, a table."""
    if given is None:
        return "nothing (null)"
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, list | dict):
        return f"{'a' if given else 'an empty'} {'list' if isinstance(given, list) else 'table of keys'}"
    return one_line(repr(given) if isinstance(given, str | int | float) else str(given), limit)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
