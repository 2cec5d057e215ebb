"""A training script as facts of a job, where it holds its own training loop. Nothing of it is run."""

import ast
from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.pythontext import imported
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.script.code import keyword
from escala.foreign.script.parts import Program
from escala.foreign.script.rules import rules_of

NAME: Final = "script"
TITLE: Final = "training script"
VERSION: Final = "torch 2.13.0"
STRATEGIES: Final = {
    "FULL_SHARD": (3, True),
    "SHARD_GRAD_OP": (3, False),
    "NO_SHARD": (0, None),
    "HYBRID_SHARD": (3, True),
}
OPTIMIZERS: Final = ("AdamW", "Adam", "SGD", "Adafactor", "Lion", "Muon")
AXES: Final = ("tp", "pp", "cp", "ep")


def score(document: Document) -> int:
    """Likely what imports torch or Accelerate: other tools read their own calls in it as well."""
    if document.syntax is not Syntax.PYTHON or document.code is None:
        return 0
    return 30 if imported(document.code, "torch", "accelerate") or _is_fragment(document) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the script says; facts of the training only where the loop is its own."""
    program = Program(document)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CODE,
        document=document,
        facts=tuple(_facts(program)),
        engine="pytorch" if program.is_spread and not program.is_handed_over else None,
        extra={"program": program},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def _is_fragment(document: Document) -> bool:
    """A block of a text that goes on with what an earlier block imported."""
    return bool(document.part) and ".backward()" in document.text


def _facts(program: Program) -> Iterator[Fact]:
    if not program.backward:
        return
    yield from _strategy(program)
    yield from _batch(program)
    yield from _numbers(program)
    yield from _mesh(program)
    yield from _spawned(program)


def _spawned(program: Program) -> Iterator[Fact]:
    """Processes that the program starts itself."""
    for call in program.called("spawn")[:1]:
        count = program.count(keyword(call, "nprocs", 2))
        if count is not None:
            yield fact("devices_per_node", count, program.place(call), "nprocs")


def _strategy(program: Program) -> Iterator[Fact]:
    """How states are spread over ranks."""
    for call in program.fsdp1[:1]:
        given = keyword(call, "sharding_strategy")
        name = program.dotted(given).rpartition(".")[2] if given is not None else "FULL_SHARD"
        zero, reshard = STRATEGIES.get(name, (None, None))
        yield from _zero(program, call, zero, reshard, name)
    for call in program.fsdp2[:1]:
        given = keyword(call, "reshard_after_forward")
        said = True if given is None else program.constant(given)
        yield from _zero(program, call, 3, said if isinstance(said, bool) else None, "fully_shard")
    if program.ddp and not (program.fsdp1 or program.fsdp2):
        owner = program.called("ZeroRedundancyOptimizer")
        call = owner[0] if owner else program.ddp[0]
        said = "ZeroRedundancyOptimizer" if owner else "DistributedDataParallel"
        yield fact("zero", 1 if owner else 0, program.place(call), said)


def _zero(
    program: Program, call: ast.Call, zero: int | None, reshard: bool | None, said: str
) -> Iterator[Fact]:
    if zero is not None:
        yield fact("zero", zero, program.place(call), said)
    if reshard is not None:
        yield fact("reshard", reshard, program.place(call), said)


def _batch(program: Program) -> Iterator[Fact]:
    sizes = [(call, keyword(call, "batch_size", 1)) for call in program.loaders]
    if len(sizes) == 1 and (count := program.count(sizes[0][1])) is not None:
        yield fact("micro_batch", count, program.place(sizes[0][1] or sizes[0][0]), "batch_size")
    accelerated = [keyword(call, "gradient_accumulation_steps") for call in program.accelerator]
    for given in accelerated:
        if given is not None and (count := program.count(given)) is not None:
            yield fact("accumulation", count, program.place(given), "gradient_accumulation_steps")
            return
    found = program.accumulation
    if found is not None and found.count is not None:
        yield fact("accumulation", found.count, program.place(found.place), "the step of the optimizer")


def _numbers(program: Program) -> Iterator[Fact]:
    """Precision, model, optimizer and its rate, compilation, recomputation."""
    formats = program.dtypes()
    if len(formats) == 1:
        [(kind, node)] = formats.items()
        yield fact("precision", kind, program.place(node), "dtype")
    for call in program.accelerator[:1]:
        given = keyword(call, "mixed_precision")
        if given is not None and program.constant(given) in ("bf16", "fp16"):
            yield fact("precision", str(program.constant(given)), program.place(given), "mixed_precision")
    loaded = [
        call
        for call in program.called("from_pretrained")
        if "Model" in program.dotted(call.func) and isinstance(program.constant(keyword(call, "", 0)), str)
    ]
    if len(loaded) == 1:
        yield fact(
            "model",
            str(program.constant(loaded[0].args[0])),
            program.place(loaded[0].args[0]),
            "from_pretrained",
        )
    optimizers = program.called(*OPTIMIZERS)
    if len(optimizers) == 1:
        name = program.dotted(optimizers[0].func).rpartition(".")[2]
        yield fact("optimizer", name, program.place(optimizers[0]), name)
        rate = program.constant(keyword(optimizers[0], "lr", 1))
        if isinstance(rate, float):
            yield fact("learning_rate", rate, program.place(optimizers[0]), "lr")
    for call in program.called("compile"):
        if program.dotted(call.func) == "torch.compile":
            yield fact("compile", True, program.place(call), "torch.compile")
            break
    for call in program.called("gradient_checkpointing_enable")[:1]:
        yield fact("recompute", "full", program.place(call), "gradient_checkpointing_enable")


def _mesh(program: Program) -> Iterator[Fact]:
    """Degrees by the names of a mesh's axes."""
    for call in program.called("init_device_mesh")[:1]:
        shape = program.meant(keyword(call, "mesh_shape", 1))
        names = program.meant(keyword(call, "mesh_dim_names", 2))
        if not isinstance(shape, ast.Tuple) or not isinstance(names, ast.Tuple):
            return
        for size, name in zip(shape.elts, names.elts, strict=False):
            axis, count = program.constant(name), program.count(size)
            if axis in AXES and count is not None:
                yield fact(str(axis), count, program.place(size), f"mesh axis {axis}")
