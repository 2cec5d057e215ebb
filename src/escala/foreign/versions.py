"""Versions of tools in order. Knows no tool."""

import re


def parts(version: str) -> tuple[int, ...]:
    """The numbers of a version: 0.19.8 is (0, 19, 8); what follows them (rc1, +cpu) is left out."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(each) for each in match.group().split(".")) if match else ()


def is_before(version: str, other: str) -> bool:
    """Whether a version is older than another; missing parts are 0."""
    left, right = parts(version), parts(other)
    length = max(len(left), len(right))
    return left + (0,) * (length - len(left)) < right + (0,) * (length - len(right))
