"""When a batch script is wrong, alone or beside its job. The words are in data/rules/slurm.toml."""

import re
from collections.abc import Iterator
from typing import Any, Final

from escala.foreign.documents import Document
from escala.foreign.facts import whole
from escala.foreign.findings import Edit, Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Role
from escala.foreign.shelltext import Script
from escala.foreign.slurm.directives import LATER, Directive, directives, last_of, spaced
from escala.foreign.slurm.launching import Launch, launches

EARLY: Final = re.compile(r"(?<!\\)\$\{?(SLURM_(?:NODEID|PROCID|LOCALID))\b")
HEARD: Final = frozenset(("TERM", "INT", "HUP", "QUIT", "15", "2", "1", "3"))
"""Signals that torchrun hands on, by name and number."""
MASTERS: Final = ("MASTER_ADDR", "MAIN_PROCESS_IP", "HEAD_NODE_IP", "head_node_ip")
LOCAL: Final = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "::1"))
OWN_NODES: Final = frozenset(("nodes", "nodelist", "w", "relative", "r"))
"""Options by which srun takes some of the job's nodes: several trainings may share them."""
SAVED: Final = re.compile(r"checkpoint|resume|ckpt|--load\b|--save\b|escala train", re.IGNORECASE)


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this file."""
    document = reading.document
    script = reading.inside[0].script
    assert script is not None
    options = directives(document)
    asked, started = last_of(options), list(launches(script))
    yield from _spelling(document, options)
    yield from _tasks(job, reading, asked, started)
    yield from _granted(job, reading, asked, started)
    yield from _cores(job, reading, asked, started)
    yield from _memory(job, reading, asked)
    yield from _meeting(document, reading, script, started)
    yield from _port(asked, script)
    yield from _ending(document, reading, asked, script, started)


def _spelling(document: Document, options: list[Directive]) -> Iterator[Finding]:
    known = last_of([each for each in options if not each.is_late])
    tree = Node(value={name: each.node for name, each in known.items()}, place=document.lines.place(0))
    yield from KeyCheck(table=table("slurm"), tool="sbatch", ignored=LATER).findings(tree)
    for each in options:
        if each.is_late:
            yield finding("slurm-late-directive", each.key, option=each.name)
    for place in spaced(document):
        yield finding("slurm-spaced-directive", place)


def _nodes(reading: Reading) -> int | None:
    """Nodes that the directives ask for, where they say a number."""
    said = reading.fact("nodes")
    return said.value if said is not None and isinstance(said.value, int) else None


def _gpus(reading: Reading) -> int | None:
    said = reading.fact("devices_per_node")
    return said.value if said is not None and isinstance(said.value, int) else None


def _number(options: dict[str, Directive], name: str) -> int | None:
    return whole(options[name].value) if name in options else None


def _tasks_per_node(options: dict[str, Directive], launch: Launch, nodes: int | None) -> int | None:
    """Tasks that srun starts on each node: its own options count before the job's; one where none says it."""
    own, total = (whole(launch.srun.get(name, "")) for name in ("ntasks-per-node", "ntasks"))
    if own is not None:
        return own
    if total is not None and nodes:
        return max(1, total // nodes)
    each, total_asked = _number(options, "ntasks-per-node"), _number(options, "ntasks")
    if each is not None:
        return each
    return max(1, total_asked // nodes) if total_asked is not None and nodes else 1 if nodes else None


def _launched(job: Job) -> tuple[int | None, str]:
    """Processes on each node as the launchers of the job say, and how they say it."""
    for reading in job.readings:
        said = reading.fact("devices_per_node")
        if reading.role is not Role.ALLOCATION and said is not None and isinstance(said.value, int):
            return said.value, said.said
    return None, ""


def _tasks(
    job: Job, reading: Reading, options: dict[str, Directive], started: list[Launch]
) -> Iterator[Finding]:
    nodes, (processes, _), gpus = _nodes(reading), _launched(job), _gpus(reading)
    for each in started:
        tasks = _tasks_per_node(options, each, nodes or 1)
        if each.is_srun and each.launcher and processes and processes > 1 and tasks and tasks > 1:
            place = options["ntasks-per-node"].key if "ntasks-per-node" in options else each.place.place
            yield finding(
                "slurm-torchrun-for-each-task",
                place,
                edits=_written(options, "ntasks-per-node", "1"),
                tasks=tasks,
                processes=processes,
                product=tasks * processes,
                devices=f"the {gpus} GPUs" if gpus else "the GPUs",
            )
        if not each.is_srun and each.launcher and nodes is not None and nodes > 1:
            yield finding("slurm-one-node-starts", each.place.place, launcher=each.launcher, nodes=nodes)
        if each.is_srun and each.runs_python and gpus and tasks and tasks < gpus and gpus > 1:
            yield finding(
                "slurm-one-process-for-many-gpus",
                each.place.place,
                tasks=tasks,
                granted=gpus,
                idle=gpus - tasks,
            )


def _written(options: dict[str, Directive], name: str, text: str) -> tuple[Edit, ...]:
    """The change of an option's value, where it has one."""
    if name not in options:
        return ()
    place = options[name].place
    return (Edit(file=place.file, start=place.start, end=place.end, text=text),)


def _granted(
    job: Job, reading: Reading, options: dict[str, Directive], started: list[Launch]
) -> Iterator[Finding]:
    """What is asked for against what is started."""
    if not any(OWN_NODES & each.srun.keys() for each in started):
        yield from _granted_nodes(job, reading)
    nodes, gpus, (processes, said) = _nodes(reading) or 1, _gpus(reading), _launched(job)
    total = _number(options, "gpus")
    if total is not None and processes and nodes > 1 and total < nodes * processes:
        each = total // nodes
        yield finding(
            "slurm-total-gpus",
            options["gpus"].key,
            total=total,
            nodes=nodes,
            processes=processes,
            wanted=nodes * processes,
            each=each or "none",
        )
        return
    asked = reading.fact("devices_per_node")
    if asked is not None and gpus and processes and gpus != processes:
        yield finding(
            "slurm-too-few-gpus" if gpus < processes else "slurm-idle-gpus",
            asked.place,
            option=asked.said.lstrip("-"),
            granted=gpus,
            processes=processes,
            said=said,
            idle=gpus - processes,
        )
    torchruns = [each for each in started if each.launcher]
    if torchruns and not _asks_for_gpus(options) and processes:
        yield finding(
            "slurm-no-gpus",
            torchruns[0].place.place,
            launcher=torchruns[0].launcher,
            processes=processes,
        )


def _asks_for_gpus(options: dict[str, Directive]) -> bool:
    """Whether an option brings GPUs; --exclusive grants all of a node."""
    return bool(
        options.keys()
        & {"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "exclusive", "gres", "tres-per-task"}
    )


def _granted_nodes(job: Job, reading: Reading) -> Iterator[Finding]:
    granted, asked, told = _nodes(reading), reading.fact("nodes"), job.facts.get("nodes")
    if granted is None or asked is None or told is None or told.place == asked.place:
        return
    launched = told.value
    if not isinstance(launched, int) or launched == granted:
        return
    words: dict[str, Any] = {"granted": granted, "launched": launched, "said": told.said}
    if launched > granted:
        yield finding("slurm-fewer-nodes-than-launched", told.place, missing=launched - granted, **words)
        return
    alone = "each node trains on its own, all with the same data and files"
    why = alone if launched == 1 else f"{granted - launched} nodes stand idle, or wait until a timeout"
    yield finding("slurm-nodes-apart", told.place, why_of=why, **words)


def _cores(
    job: Job, reading: Reading, options: dict[str, Directive], started: list[Launch]
) -> Iterator[Finding]:
    processes, _ = _launched(job)
    for each in started:
        if not (each.is_srun and each.launcher and processes and processes > 1):
            continue
        asked, own = _number(options, "cpus-per-task"), each.srun.get("cpus-per-task", "")
        is_set = "SRUN_CPUS_PER_TASK" in each.command.variables
        if asked is not None and asked > 1 and not own and not is_set:
            yield finding("slurm-cores-not-inherited", options["cpus-per-task"].key, cores=asked)
        cores = whole(own) if own else asked
        if (own and cores is None) or "exclusive" in options or "cpus-per-gpu" in options:
            continue
        if (cores or 1) < processes:
            said = "one core, the default" if cores is None else f"{cores} core{'s' if cores > 1 else ''}"
            place = options["cpus-per-task"].key if cores is not None and asked else each.place.place
            yield finding("slurm-few-cores", place, processes=processes, cores=said, wanted=2 * processes)


def _memory(job: Job, reading: Reading, options: dict[str, Directive]) -> Iterator[Finding]:
    asked = options.keys() & {"mem", "mem-per-cpu", "mem-per-gpu"}
    offloads = [job.facts.get(name) for name in ("offload_optimizer", "offload_params")]
    if not asked and any(each is not None and each.value != "none" for each in offloads):
        yield finding("slurm-default-memory", reading.document.lines.place(0))


def _meeting(
    document: Document, reading: Reading, script: Script, started: list[Launch]
) -> Iterator[Finding]:
    """The address and the numbers by which nodes find each other."""
    nodes = _nodes(reading)
    if nodes is None or nodes < 2:
        return
    for name in MASTERS:
        word = script.variables.get(name)
        if word is not None and word.text in LOCAL:
            yield finding("slurm-master-is-local", word.place, host=word.text, nodes=nodes)
        elif word is not None and "scontrol" in word.text and re.search(r"\|\s*tail\b", word.text):
            yield finding("slurm-master-is-last", word.place)
    for each in started:
        if each.is_srun and each.launcher:
            yield from _of_tasks(document, each)


def _of_tasks(document: Document, launch: Launch) -> Iterator[Finding]:
    """What the first node's shell fills in too early, and what each node fills in for itself."""
    for word in launch.command.words:
        written = document.text[word.place.start : word.place.end]
        early = EARLY.search(written) if word.is_open else None
        if early is not None and not written.startswith("'"):
            yield finding("slurm-rank-expanded-early", word.place, variable=f"${early.group(1)}")
        if written.startswith("'"):
            local = re.search(
                r"(?:rdzv[-_]endpoint|master[-_]addr)[= ]\"?(\$\(hostname[^)]*\)|\$HOSTNAME)", written
            )
            if local is not None:
                yield finding("slurm-master-in-each-task", word.place, said=local.group(1))


def _port(options: dict[str, Directive], script: Script) -> Iterator[Finding]:
    word = script.variables.get("MASTER_PORT")
    if word is not None and word.text.isdigit() and "exclusive" not in options:
        yield finding("slurm-fixed-port", word.place, port=word.text)


def _ending(
    document: Document,
    reading: Reading,
    options: dict[str, Directive],
    script: Script,
    started: list[Launch],
) -> Iterator[Finding]:
    """Signals before the end of the time, a second start, and what happens when one node fails."""
    if "signal" in options:
        yield from _signal(options["signal"], script, started)
    if "requeue" in options and not SAVED.search(document.text):
        yield finding("slurm-requeue-from-start", options["requeue"].key)
    nodes = _nodes(reading)
    for each in started:
        kills = "kill-on-bad-exit" in each.srun or "SLURM_KILL_BAD_EXIT" in each.command.variables
        if each.is_srun and each.launcher and nodes is not None and nodes > 1 and not kills:
            yield finding("slurm-survivors-wait", each.place.place, nodes=nodes)


def _signal(option: Directive, script: Script, started: list[Launch]) -> Iterator[Finding]:
    targets, _, rest = option.value.rpartition(":")
    name = rest.partition("@")[0].upper().removeprefix("SIG")
    traps = any(each.name == "trap" for each in script.commands)
    words: dict[str, Any] = {
        "value": option.value,
        "signal": f"SIG{name}" if not name.isdigit() else f"signal {name}",
    }
    if "B" in targets.upper():
        if not traps:
            yield finding("slurm-signal-unheard", option.key, **words)
    elif name not in HEARD and any(each.launcher for each in started):
        yield finding("slurm-signal-kills-torchrun", option.key, **words)
