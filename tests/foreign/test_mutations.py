"""Whatever is done to a file: an answer or one clear line, never another error and no endless work."""

import os
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escala.catalog.clusters import cluster_for
from escala.errors import InvalidInput
from escala.foreign.findings import Severity
from escala.foreign.jobs import read_job
from escala.report.check_answer import CheckAnswer
from escala.report.check_view import checked
from foreign.seeds import seeds

SEEDS: Final = seeds()
CLUSTER: Final = cluster_for("h100-sxm", 8)
MANY: Final = int(os.environ.get("ESCALA_TEST_MUTATIONS", "80"))
"""Mutations that are tried; ESCALA_TEST_MUTATIONS=10000 is the long run."""
VALUES: Final = st.sampled_from(
    (
        *("0", "-1", "1", "7", "1e400", "10000000000000000000000", "3.5", "true", "null", "~", "auto", '""'),
        *(
            "[]",
            "{}",
            "[1, [2]]",
            "{a: &x 1, b: *x}",
            "!!python/object:os.system",
            "${X}",
            "{{ x }}",
            "$(id)",
        ),
        *("'", '"', "\\", "\t", "\ufeff", "\u2028", "é", "\x00", "nvme", "5e-5", "llama-3.1-8b", "none", "%"),
    )
)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file with one to four mutations of its lines, values or bytes."""
    name = draw(st.sampled_from(sorted(SEEDS)))
    lines = SEEDS[name].splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        lines = _line_mutation(draw, lines)
    content = "".join(lines).encode("utf-8", "replace")
    if content and draw(st.booleans()):
        at = draw(st.integers(0, len(content) - 1))
        content = content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
    return name, content[:100_000]


def _line_mutation(draw: st.DrawFn, lines: list[str]) -> list[str]:
    if not lines:
        return [draw(VALUES)]
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(("drop", "double", "swap", "value", "cut", "indent", "number")))
    line, changed = lines[one], list(lines)
    if kind == "drop":
        del changed[one]
    elif kind == "double":
        changed.insert(other, line)
    elif kind == "swap":
        changed[one], changed[other] = changed[other], line
    elif kind == "indent":
        changed[one] = draw(st.sampled_from(("  ", "\t", "    "))) + line
    elif kind == "cut":
        changed[one] = line[: draw(st.integers(0, len(line)))]
    elif kind == "number":
        digits = "".join(letter if not letter.isdigit() else str(draw(st.integers(0, 9))) for letter in line)
        changed[one] = digits
    else:
        key, separator, _ = next(
            (line.partition(mark) for mark in (":", "=", " ") if mark in line), (line, "", "")
        )
        changed[one] = f"{key}{separator} {draw(VALUES)}\n"
    return changed


def answered(path: Path, *, has_cluster: bool) -> CheckAnswer | str:
    """The answer about a file, or why it is refused."""
    try:
        job = read_job([str(path)], {"model": "llama-3.1-8b"} if has_cluster else {}, {})
        return checked(job, CLUSTER if has_cluster else None, None)
    except InvalidInput as error:
        return str(error)


@settings(
    max_examples=MANY,
    deadline=120_000,  # ms: on a busy machine; what takes longer would not end
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(mutation=mutated(), has_cluster=st.sampled_from((True, False, False, False)))
def test_a_mutated_file_is_answered_or_refused(
    tmp_path: Path, mutation: tuple[str, bytes], has_cluster: bool
) -> None:
    name, content = mutation
    path = tmp_path / name
    path.write_bytes(content)

    found = answered(path, has_cluster=has_cluster)

    if isinstance(found, str):
        assert "\n" not in found
    else:
        assert {each.severity for each in found.findings} <= set(map(str, Severity))
