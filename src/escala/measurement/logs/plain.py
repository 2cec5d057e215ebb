"""Steps that a loop prints in its own words: `step 38 loss 0.1`, `Step 38/1000`, `iter 38:`. Knows no tool.

Reads stamped lines only: the time before the line is the clock. Of several kinds of lines, told apart by the
text before the number, the one whose number grew for the longest time has the steps.
"""

import re
from typing import Final

from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import Source
from escala.measurement.logs.stamped import Stamped
from escala.measurement.logs.stdout import PREFIX, rank_of

PRINTED: Final = re.compile(
    r"""(?<![\w-])(?:global[ _])?(?:step|iter|iteration)["']?(?:\ *[:=\#]\ *|\ +|(?=\[))\[?\ *
    (\d{1,15})(?!\w|[.,]\d|\ *(?:ms|s|sec|seconds|min)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
VARYING: Final = re.compile(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?| +", re.IGNORECASE)
Kind = tuple[str, str]
"""The words before the number, and the rank that printed them."""


def plain(source: Source) -> Samples:
    """The clock at each line of the chosen kind; a line that repeats the step before it says nothing new."""
    assert isinstance(source, Stamped)  # other lines have no time
    chosen = longest(Stamped(source.path))
    last: dict[str, int] = {}
    for line in source.lines():
        found = printed(line)
        if found is None or found[0][0] != chosen:
            continue
        (_, rank), step = found
        if step != last.get(rank):
            yield Sample(What.CLOCK_S, source.now_s, step, rank)
        last[rank] = step


def printed(line: str) -> tuple[Kind, int] | None:
    """The kind of line and its step, if it prints one."""
    found = PRINTED.search(line[:PREFIX])
    if found is None:
        return None
    words = VARYING.sub("#", line[: found.start(1)]).lower()
    return (words, rank_of(line)), int(found[1])


def longest(source: Stamped) -> str | None:
    """The words of the lines whose number grew for the longest time; None where none grew."""
    grew_s: dict[str, float] = {}
    before: dict[Kind, tuple[int, float]] = {}
    for line in source.lines():
        if found := printed(line):
            kind, step = found
            last_step, last_s = before.get(kind, (step, source.now_s))
            passed_s = source.now_s - last_s if step > last_step else 0.0
            grew_s[kind[0]] = grew_s.get(kind[0], 0.0) + passed_s
            before[kind] = step, source.now_s
    words = max(grew_s, key=lambda each: grew_s[each], default=None)
    return words if words is not None and grew_s[words] > 0 else None
