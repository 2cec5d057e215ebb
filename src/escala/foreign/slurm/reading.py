"""Slurm's batch scripts as what a scheduler grants a job. Knows its options, not when they are wrong.

The script itself is read by the tools whose commands are in it, with the variables that Slurm sets filled in.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from escala.foreign.carried import scripts_named
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact, whole
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Word, read_shell
from escala.foreign.slurm.directives import Directive, bytes_of, directives, gpus_of, last_of
from escala.foreign.slurm.rules import rules_of

NAME: Final = "slurm"
TITLE: Final = "Slurm"
VERSION: Final = "22.05"
EXPORTED: Final = re.compile(r"([A-Za-z_]\w*)=([^,]*)")


def score(document: Document) -> int:
    """Certain where a script has directives for sbatch."""
    return 90 if document.syntax is Syntax.SHELL and directives(document) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    options = last_of(directives(document))
    inside = _inside(document, options)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.ALLOCATION,
        document=document,
        facts=tuple(_facts(options)),
        references=scripts_named(inside, NAME),
        inside=(inside,),
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def nodes_of(options: dict[str, Directive]) -> int | None:
    """Nodes of a job: one where nothing asks for more; unknown for a range or where tasks may spread."""
    given = options.get("nodes")
    if given is not None:
        return whole(given.value) or None
    return None if options.keys() & {"ntasks", "gpus", "nodelist", "nodefile"} else 1


def gpu_option(options: dict[str, Directive]) -> Directive | None:
    """The option that asks for GPUs of each node."""
    for name in ("gpus-per-node", "gres"):
        if name in options and (name != "gres" or "gpu" in options[name].value):
            return options[name]
    return None


def granted_gpus(options: dict[str, Directive]) -> int | None:
    """GPUs of each node: what is asked for each, or an even share of the job's."""
    asked, total, nodes = gpu_option(options), options.get("gpus"), nodes_of(options)
    if asked is not None:
        return _gpus(asked)[0]
    count = gpus_of(total.value)[0] if total is not None else None
    if count is not None and nodes is not None and count % nodes == 0:
        return count // nodes
    each, tasks = options.get("gpus-per-task"), options.get("ntasks-per-node")
    count = gpus_of(each.value)[0] if each is not None else None
    several = whole(tasks.value) if tasks is not None else None
    return count * several if count is not None and several is not None else None


def _gpus(option: Directive) -> tuple[int | None, str]:
    wanted = [each for each in option.value.split(",") if option.name != "gres" or each.startswith("gpu")]
    return gpus_of(wanted[0]) if wanted else (None, "")


def _facts(options: dict[str, Directive]) -> Iterator[Fact]:
    nodes, given = nodes_of(options), options.get("nodes")
    if nodes is not None and given is not None:
        yield fact("nodes", nodes, given.key, "--nodes")
    asked = gpu_option(options) or options.get("gpus") or options.get("gpus-per-task")
    if asked is not None:
        each, kind = granted_gpus(options), _gpus(asked)[1]
        if each is not None:
            yield fact("devices_per_node", each, asked.key, f"--{asked.name}")
        if asked.name == "gpus" and (count := gpus_of(asked.value)[0]) is not None:
            yield fact("devices", count, asked.key, "--gpus")
        if kind:
            yield fact("device", kind, asked.key, f"--{asked.name}")
    memory = options.get("mem")
    amount = bytes_of(memory.value) if memory is not None else None
    if memory is not None and amount is not None:
        yield fact("host_bytes", amount, memory.key, "--mem")


def _inside(document: Document, options: dict[str, Directive]) -> Document:
    """The script with the variables that Slurm sets, and those that --export names."""
    given = dict(_variables(options))
    return replace(
        document, script=read_shell(document.text, document.file, document.first_line, given), findings=()
    )


def _variables(options: dict[str, Directive]) -> Iterator[tuple[str, Word]]:
    def word(name: str, text: str) -> Word:
        return Word(text=text, place=options[name].place)

    nodes, gpus = nodes_of(options), granted_gpus(options)
    if nodes is not None and "nodes" in options:
        yield "SLURM_NNODES", word("nodes", str(nodes))
        yield "SLURM_JOB_NUM_NODES", word("nodes", str(nodes))
    asked = gpu_option(options) or options.get("gpus")
    if asked is not None and gpus is not None:
        yield "SLURM_GPUS_ON_NODE", word(asked.name, str(gpus))
    for name, variable in (
        ("gpus-per-node", "SLURM_GPUS_PER_NODE"),
        ("ntasks-per-node", "SLURM_NTASKS_PER_NODE"),
        ("cpus-per-task", "SLURM_CPUS_PER_TASK"),
        ("ntasks", "SLURM_NTASKS"),
        ("job-name", "SLURM_JOB_NAME"),
    ):
        if name in options:
            yield variable, word(name, options[name].value)
    if "export" in options:
        place = options["export"].place
        for match in EXPORTED.finditer(options["export"].value):
            yield match.group(1), Word(text=match.group(2), place=place)
