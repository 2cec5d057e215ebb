"""When a training script is wrong, alone or beside its job. The words are in data/rules/script.toml."""

from collections.abc import Iterator
from typing import cast

from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.readings import Reading
from escala.foreign.script.loading import loading_rules
from escala.foreign.script.parts import Program
from escala.foreign.script.ranks import rank_rules
from escala.foreign.script.sharding import sharding_rules
from escala.foreign.script.starting import starting_rules
from escala.foreign.script.stepping import stepping_rules
from escala.foreign.script.superseded import superseded_rules


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this script."""
    program = cast(Program, reading.extra["program"])
    yield from superseded_rules(program)
    yield from loading_rules(job, program)
    yield from stepping_rules(job, program)
    yield from rank_rules(job, program)
    yield from starting_rules(job, program)
    yield from sharding_rules(job, program)
