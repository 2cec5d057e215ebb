"""How the processes of a program begin: by torchrun, or spawned by the program itself; whether they meet."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.script.code import Function, keyword, words
from escala.foreign.script.parts import Program

LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")
"""Tools whose launchers start one process for each device."""
FROM_ENVIRONMENT: Final = ("RANK", "TORCHELASTIC", "environ", "getenv")
"""What a program that can be started in both ways asks for."""
MEETS: Final = re.compile(r"(?<![_a-z])init|[a-z]_init|setup|accelerat", re.IGNORECASE)
"""Names of functions that may make the process group, here or in another file."""


def starting_rules(job: Job, program: Program) -> Iterator[Finding]:
    """What is wrong with the start of the processes."""
    if program.is_handed_over:
        return
    launched = any(reading.tool in LAUNCHERS and reading.facts for reading in job.readings)
    spawns = [call for call in program.called("spawn") if keyword(call, "fn", 0) is not None]
    reads = any(word in program.document.text for word in FROM_ENVIRONMENT)
    for call in spawns[:1]:
        if launched and not reads and (job.count("devices_per_node") or 2) > 1:
            yield finding("script-spawn-twice", program.place(call))
        elif not launched and not reads and _needs_address(program):
            yield finding("script-spawn-address", program.place(call))
    if launched and not spawns and not reads:
        yield from _uncalled(program)
    yield from _groupless(program)


def _needs_address(program: Program) -> bool:
    """Whether a group is made of ranks alone, so that variables have to say where they meet."""
    return any(
        keyword(call, "rank") is not None
        and keyword(call, "init_method", 1) is None
        and keyword(call, "store") is None
        and "MASTER_ADDR" not in program.document.text
        for call in program.called("init_process_group")
    )


def _uncalled(program: Program) -> Iterator[Finding]:
    """A function that takes its rank as an argument, and that nothing calls."""
    for call in program.called("init_process_group"):
        function = next((each for each in program.around(call) if isinstance(each, Function)), None)
        rank = keyword(call, "rank")
        if function is None or not isinstance(rank, ast.Name) or function.name in _used(program):
            continue
        names = [each.arg for each in function.args.args]
        if rank.id in names:
            given = f"{function.name}({', '.join(names)})"
            yield finding("script-rank-argument", program.place(call), function=given)


def _used(program: Program) -> set[str]:
    return {
        each.id
        for each in ast.walk(program.tree)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }


def _groupless(program: Program) -> Iterator[Finding]:
    """A wrapper that needs a process group, in a program in which nothing makes one.

    fully_shard makes it itself where there is none.
    """
    names = {name for call in program.calls for name in words(call.func)}
    if any(MEETS.search(name) for name in names):
        return
    for call in (*program.fsdp1, *program.ddp)[:1]:
        name = program.dotted(call.func).rpartition(".")[2]
        yield finding("script-group-missing", program.place(call), wrapper=name)
