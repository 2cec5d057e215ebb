"""When a command line of torchrun is wrong. The words are in data/rules/torchrun.toml."""

import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Final, cast

from escala.foreign.documents import Syntax
from escala.foreign.findings import Edit, Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.places import Node, Scalar
from escala.foreign.readings import Reading
from escala.foreign.torchrun.commands import Launch, as_number

HERE: Final = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
DEVICES: Final = ("auto", "gpu", "cpu", "xpu", "mps", "hpu", "npu", "mtia")
RANGE: Final = re.compile(r"[1-9]\d*(:[1-9]\d*)?")


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of these command lines."""
    launches = cast(tuple[Launch, ...], reading.extra["launches"])
    for launch in launches:
        yield from _options(launch)
        yield from _old(launch)
        yield from _sizes(job, launch)
        yield from _meeting(launch)
        yield from _script(job, reading, launch)


def _options(launch: Launch) -> Iterator[Finding]:
    """Options that torchrun does not know; its module's predecessor knew one more."""
    section = table("torchrun").sections[""]
    known = {
        name: node for name, node in launch.options.items() if not (launch.is_old and name in section.gone)
    }
    typed: dict[str, Node] = {}
    for name, node in known.items():
        types = section.keys[name].types if name in section.keys else ()
        typed[name] = Node(value=_typed(node.scalar, types), place=node.place, key=node.key)
    tree = Node(value=typed, place=launch.place)
    yield from KeyCheck(table=table("torchrun"), tool="torchrun").findings(tree)


def _typed(given: Scalar, types: tuple[str, ...]) -> Scalar:
    """What the parser makes of a word of a command line."""
    if not isinstance(given, str) or "string" in types:
        return given
    numbers = (as_number(given, int), as_number(given, float))
    return next((each for each in numbers if each is not None), given)


def _old(launch: Launch) -> Iterator[Finding]:
    if not launch.is_old:
        return
    place = launch.place
    edits = [Edit(file=place.file, start=place.start, end=place.end, text="torchrun")]
    if "use-env" in launch.options and (key := launch.options["use-env"].key) is not None:
        edits.append(Edit(file=key.file, start=key.start - 2, end=key.end, text=""))
    yield finding("torchrun-old-launcher", place, edits=tuple(edits) if place.end > place.start else ())


def _sizes(job: Job, launch: Launch) -> Iterator[Finding]:
    """Numbers of processes and nodes, where they are written as such."""
    processes, nodes = launch.said("nproc-per-node"), launch.said("nnodes")
    text = launch.text("nproc-per-node")
    if processes is not None and text and not _is_open(text) and not (text.isdigit() or text in DEVICES):
        yield finding("torchrun-processes", processes, given=text)
    granted = job.count("nodes")
    if nodes is None and granted is not None and granted > 1 and _is_everywhere(launch):
        yield finding("torchrun-nodes-unsaid", launch.place, nodes=granted)
    text = launch.text("nnodes")
    if nodes is None or text is None or _is_open(text):
        return
    least, _, most = text.partition(":")
    if RANGE.fullmatch(text) is None:
        yield finding("torchrun-nodes", nodes, given=text)
    elif most not in ("", least):
        yield finding("torchrun-elastic", nodes, least=least, most=most)


def _is_open(text: str) -> bool:
    """Whether only a shell knows it."""
    return "$" in text or "`" in text


def _is_everywhere(launch: Launch) -> bool:
    """Whether srun starts it, which does so on every node."""
    return any(word.text.rpartition("/")[2] == "srun" for word in launch.before)


def _meeting(launch: Launch) -> Iterator[Finding]:
    """Where the nodes of a job of several meet."""
    most = (launch.text("nnodes") or "1").rpartition(":")[2]
    if not most.isdigit() or int(most) < 2:
        return
    standalone = launch.said("standalone")
    if standalone is not None:
        yield finding("torchrun-standalone-nodes", standalone, nodes=most)
        return
    backend = launch.text("rdzv-backend") or "static"
    endpoint, address = launch.said("rdzv-endpoint"), launch.said("master-addr")
    where = endpoint if endpoint is not None or backend != "static" else address
    option = "--master-addr" if backend == "static" else "--rdzv-endpoint"
    counted = launch.said("nnodes") or launch.place
    if where is None:
        variable = "PET_" + option[2:].upper().replace("-", "_")
        yield finding("torchrun-endpoint-missing", counted, nodes=most, option=option, variable=variable)
    elif str(where.scalar).partition(":")[0] in HERE:
        yield finding("torchrun-endpoint-local", where, nodes=most, given=where.scalar)
    rank = launch.said("node-rank")
    if backend == "static" and rank is None and where is not None:
        yield finding("torchrun-node-rank-missing", counted, nodes=most)
    elif backend != "static" and rank is not None and "node-rank" in launch.options:
        yield finding("torchrun-node-rank-ignored", rank, backend=backend)


def _script(job: Job, reading: Reading, launch: Launch) -> Iterator[Finding]:
    script = launch.script
    if script is None:
        yield finding("torchrun-script-missing", launch.place)
        return
    if script.text.startswith("python") and "no-python" not in launch.options and "." not in script.text[6:]:
        yield finding("torchrun-python-word", script.place)
    if (
        script.is_open
        or not script.text.endswith(".py")
        or reading.document.part
        or reading.document.is_remark
    ):
        return
    documents = (*(each.document for each in job.readings), *job.unread)
    names = {FilePath(each.file).name for each in documents if each.syntax is Syntax.PYTHON}
    name = FilePath(script.text).name
    if (
        len(names) == 1
        and name not in names
        and not (FilePath(reading.document.file).parent / script.text).exists()
    ):
        yield finding("torchrun-other-script", script.place, given=script.text, other=names.pop())
