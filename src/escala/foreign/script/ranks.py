"""Which process does what: devices of ranks, the process group, who writes files."""

import ast
from collections.abc import Iterator
from typing import Final, cast

from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.script.code import keyword, texts, words
from escala.foreign.script.parts import RANK, Program
from escala.foreign.torchrun.commands import Launch

DEVICE_CALLS: Final = ("set_device", "cuda", "device", "to")


def rank_rules(job: Job, program: Program) -> Iterator[Finding]:
    """What is wrong with ranks and their devices."""
    yield from _arguments(job, program)
    yield from _mesh(job, program)
    if not program.is_spread or program.is_handed_over:
        return
    yield from _global_rank(job, program)
    yield from _one_device(program)
    yield from _group(program)
    yield from _saving(program)


def _arguments(job: Job, program: Program) -> Iterator[Finding]:
    """--local-rank as an argument, which torchrun does not give, and its predecessor spells with a dash."""
    launcher = job.reading("torchrun")
    if launcher is None or "LOCAL_RANK" in program.document.text:
        return
    launches = cast(tuple[Launch, ...], launcher.extra["launches"])
    for call in program.called("add_argument"):
        names = texts(call) & {"--local_rank", "--local-rank"}
        if not names:
            continue
        if all(not launch.is_old for launch in launches):
            yield finding("script-local-rank-argument", program.place(call), given=min(names))
        elif "--local-rank" not in names and all("use-env" not in each.options for each in launches):
            yield finding("script-local-rank-spelling", program.place(call))


def _mesh(job: Job, program: Program) -> Iterator[Finding]:
    """A mesh of another size than the job."""
    devices = job.sure("devices")
    for call in program.called("init_device_mesh"):
        shape = program.meant(keyword(call, "mesh_shape", 1))
        if not isinstance(shape, ast.Tuple) or devices is None:
            continue
        product = 1
        for each in shape.elts:
            product *= program.count(each) or 0
        if product not in (0, devices):
            yield finding("script-mesh-size", program.place(call), product=product, devices=devices)


def _global_rank(job: Job, program: Program) -> Iterator[Finding]:
    """The rank in the whole job as the number of a device of one node."""
    if (job.count("nodes") or 1) < 2:
        return
    for call in program.called(*DEVICE_CALLS):
        for given in (*call.args, *(each.value for each in call.keywords)):
            if isinstance(given, ast.Name) and _is_global(program, given):
                nodes = job.count("nodes")
                yield finding("script-global-rank", program.place(given), given=given.id, nodes=nodes)
                return


def _is_global(program: Program, name: ast.Name) -> bool:
    """Whether a variable has dist.get_rank() or the variable RANK."""
    meant = program.meant(name)
    if not isinstance(meant, ast.Call):
        return False
    return program.dotted(meant.func).endswith(".get_rank") or "RANK" in texts(meant)


def _one_device(program: Program) -> Iterator[Finding]:
    """Ranks that all take the default device, number 0."""
    text = program.document.text
    if any(
        word in text for word in ("set_device", "CUDA_VISIBLE_DEVICES", "device_id=", "cuda:", "LOCAL_RANK")
    ):
        return
    if any(RANK.search(word) for call in program.called("cuda", "to", "device") for word in words(call)):
        return
    if not any("nccl" in texts(call) for call in program.called("init_process_group")):
        return
    for call in program.called("cuda", "to"):
        is_default = (
            not call.args and not call.keywords if _last(program, call) == "cuda" else texts(call) == {"cuda"}
        )
        if is_default and isinstance(call.func, ast.Attribute):
            yield finding("script-device-unset", program.place(call))
            return


def _last(program: Program, call: ast.Call) -> str:
    return program.dotted(call.func).rpartition(".")[2]


def _group(program: Program) -> Iterator[Finding]:
    started = program.called("init_process_group")
    if started and not program.called("destroy_process_group"):
        yield finding("script-group-left", program.place(started[0]))


def _saving(program: Program) -> Iterator[Finding]:
    """torch.save in the function of the training loop, without asking for the rank."""
    functions = {_function(program, call) for call in program.backward}
    for call in program.called("save"):
        if program.dotted(call.func) != "torch.save" or _function(program, call) not in functions:
            continue
        name = keyword(call, "f", 1)
        if name is not None and any(RANK.search(word) for word in words(name) | texts(name)):
            continue
        if not program.is_on_one_rank(call):
            yield finding("script-save-on-all", program.place(call))


def _function(program: Program, node: ast.AST) -> ast.AST | None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return next((each for each in program.around(node) if isinstance(each, kinds)), None)
