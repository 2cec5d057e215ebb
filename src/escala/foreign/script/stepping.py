"""The training loop of a script: accumulation, scaling, what each step waits for."""

import ast
from collections.abc import Iterator

from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.script.code import keyword
from escala.foreign.script.parts import UNSYNCHRONISED, Program


def stepping_rules(job: Job, program: Program) -> Iterator[Finding]:
    """What is wrong with the loop."""
    yield from _accumulating(job, program)
    yield from _accelerated(program)
    yield from _scaler(program)
    yield from _gradients(program)
    yield from _waiting(program)
    for call in program.ddp:
        given = keyword(call, "find_unused_parameters")
        if given is not None and program.constant(given) is True:
            yield finding("script-unused-parameters", program.place(given))


def _accumulating(job: Job, program: Program) -> Iterator[Finding]:
    """Micro-batches that each send their gradients."""
    found = program.accumulation
    names = program.attributes | program.bound
    if found is None or names & UNSYNCHRONISED or program.is_handed_over or program.fsdp1 or program.fsdp2:
        return
    call = next(call for call in program.backward if program.loop(call) is found.loop)
    times = found.count or "as many"
    if program.ddp:
        yield finding("script-accumulation-synchronises", program.place(call), times=times)
    elif program.document.part or (job.count("devices") or 1) > 1:
        yield finding("script-accumulation-alone", program.place(call), times=times)


def _accelerated(program: Program) -> Iterator[Finding]:
    """Calls of Accelerate that only work together."""
    for call in program.accelerator[:1]:
        steps = keyword(call, "gradient_accumulation_steps")
        if steps is not None and (program.count(steps) or 1) > 1 and "accumulate" not in program.attributes:
            yield finding("script-accumulate-missing", program.place(steps), steps=program.count(steps))
        alone = [each for each in program.backward if not each.args]
        if alone and "prepare" in program.attributes and program.loop(alone[0]) is not None:
            yield finding("script-backward-bypasses", program.place(alone[0]))


def _scaler(program: Program) -> Iterator[Finding]:
    """A scaler of gradients beside a format that needs none."""
    formats = program.dtypes()
    for call in program.called("GradScaler", "ShardedGradScaler"):
        enabled = keyword(call, "enabled")
        if set(formats) == {"bf16"} and (enabled is None or program.constant(enabled) is True):
            yield finding("script-scaler-with-bf16", program.place(call))


def _gradients(program: Program) -> Iterator[Finding]:
    """Steps without gradients ever being cleared."""
    steps = [
        call
        for call in program.called("step")
        if isinstance(call.func, ast.Attribute) and "opt" in program.dotted(call.func.value).lower()
    ]
    cleared = "zero_grad" in program.attributes or any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(program.tree)
    )
    if steps and program.loops and not cleared and not program.is_handed_over:
        yield finding("script-gradients-kept", program.place(steps[0]))


def _waiting(program: Program) -> Iterator[Finding]:
    """Values that every step fetches from the device."""
    for call in program.called("item"):
        loop = program.loop(call)
        if loop not in program.loops or not isinstance(call.func, ast.Attribute):
            continue
        if not any(isinstance(each, ast.If) for each in _up_to(program, call, loop)):
            yield finding("script-item-each-step", program.place(call))
            return


def _up_to(program: Program, node: ast.AST, loop: ast.AST | None) -> Iterator[ast.AST]:
    for each in program.around(node):
        if each is loop:
            return
        yield each
