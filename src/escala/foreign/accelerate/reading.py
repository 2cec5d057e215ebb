"""Accelerate's files and launch lines as facts. Knows no condition under which they are wrong."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.accelerate.options import Options, of_file, of_line
from escala.foreign.accelerate.rules import line_rules, rules_of
from escala.foreign.accelerate.saying import facts_of, leaves_of
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import is_open
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.launchlines import LaunchLine, launch_lines
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.scriptarguments import argument_facts

NAME: Final = "accelerate"
TITLE: Final = "Accelerate"
VERSION: Final = "1.15.0"
BLOCKS: Final = frozenset(
    ("fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config", "dynamo_config")
)
OTHERS: Final = frozenset(
    ("compute_environment", "num_processes", "num_machines", "machine_rank", "main_training_function")
)
SWITCHES: Final = frozenset(
    (
        "cpu",
        "debug",
        "downcast_bf16",
        "dynamo_use_dynamic",
        "dynamo_use_fullgraph",
        "dynamo_use_regional_compilation",
        "enable_cpu_affinity",
        "fp8_use_autocast_during_eval",
        "h",
        "help",
        "m",
        "module",
        "multi_gpu",
        "no_python",
        "no_tpu_cluster",
        "q",
        "quiet",
        "same_network",
        "tpu",
        "tpu_cluster",
        "tpu_use_sudo",
        "use_deepspeed",
        "use_fsdp",
        "use_megatron_lm",
        "use_parallelism_config",
    )
)
"""Options without a value (accelerate 1.15, commands/launch.py)."""
PROGRAMS: Final = ("accelerate launch", "accelerate-launch", "accelerate.commands.launch")
FILES: Final = {"config_file": "--config_file", "deepspeed_config_file": "deepspeed_config_file"}
ENGINES: Final = {"DEEPSPEED": "deepspeed", "MEGATRON_LM": "megatron-core"}
LEAVES: Final = "leaf_modules"


def score(document: Document) -> int:
    """Certain with a distributed type beside a key of its own, likely with several of those."""
    if document.tree is not None and document.syntax in (Syntax.YAML, Syntax.JSON):
        names = document.tree.table.keys()
        own = len(names & (OTHERS | BLOCKS))
        if "distributed_type" in names:
            return 95 if own else 60
        return 60 if own > 2 else 0
    return 70 if next(_lines(document), None) is not None else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    launches = tuple(_lines(document)) if document.tree is None else ()
    given = [of_line(line.options) for line in launches]
    options = given or ([of_file(document.tree)] if document.tree is not None else [])
    facts = [fact for each in options for fact in facts_of(each, is_whole=not launches)]
    facts += [fact for line in launches for fact in argument_facts(line.arguments)]
    kind = next((each.kind for each in options if each.kind is not None), None)
    leaves = tuple(name for each in options for name in leaves_of(each))
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.LAUNCH if launches else Role.CONFIG,
        document=document,
        facts=tuple(facts),
        references=tuple(_references(options)),
        engine=ENGINES.get(kind or ""),
        extra={
            "kind": kind,
            "options": frozenset(name for line in launches for name in line.options),
            **({LEAVES: leaves} if leaves else {}),
        },
        overrides=frozenset(fact.name for each in given for fact in facts_of(each, is_whole=False)),
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it beside the rest of its job."""
    if reading.document.tree is not None:
        yield from rules_of(job, reading, of_file(reading.document.tree))
        return
    for line in _lines(reading.document):
        yield from line_rules(job, reading, line)


def _lines(document: Document) -> Iterator[LaunchLine]:
    for program in PROGRAMS:
        for line in launch_lines(document, program, SWITCHES):
            if line.script is not None:
                yield line


def _references(options: list[Options]) -> Iterator[Reference]:
    for each in options:
        for name, said in FILES.items():
            node = each.get(name)
            if node is not None and _is_name(node):
                yield Reference(file=str(node.value), place=node.place, said=said)


def _is_name(node: Node) -> bool:
    return isinstance(node.value, str) and not is_open(node.value) and node.value.lower() != "none"
