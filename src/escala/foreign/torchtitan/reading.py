"""torchtitan's configurations as settings and facts: Python of 0.3, flags of a command, older TOML."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import FACTS, Fact, fact, is_open
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.places import Node, Place
from escala.foreign.pythontext import Python, imported
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.shelltext import Command, Word, flags
from escala.foreign.torchtitan.facts import facts_of
from escala.foreign.torchtitan.recipes import Draft, drafts, setting
from escala.foreign.torchtitan.rules import rules_of
from escala.foreign.torchtitan.settings import Settings, written
from escala.foreign.torchtitan.sizes import shipped

NAME: Final = "torchtitan"
TITLE: Final = "torchtitan"
VERSION: Final = "0.3.0"
SURE: Final = frozenset(("parallelism", "activation_checkpoint", "float8", "quantize"))
LIKELY: Final = frozenset(
    ("job", "model", "training", "optimizer", "lr_scheduler", "metrics", "experimental")
)
ENTRIES: Final = ("torchtitan.train", "torchtitan/train.py", "run_train.sh", "torchtitan/torchtitan/train.py")
FIRST: Final = "before 0.1"
SUBCOMMAND: Final = "activation-checkpoint:"
OLD_FILES: Final = ("job.config-file", "job.config_file")


def score(document: Document) -> int:
    """By the sections of a TOML, by an import of torchtitan, by the program of a command."""
    if document.syntax is Syntax.TOML and document.tree is not None:
        names = frozenset(document.tree.table)
        return 90 if names & SURE and names & LIKELY else 60 if len(names & LIKELY) > 2 else 0
    if document.code is not None:
        return 80 if imported(document.code, "torchtitan") and _draft(document) else 0
    return 80 if _command(document) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    settings, found, place = _settings(document)
    detected = VERSION if settings.is_current else _generation(settings)
    references = tuple(_references(document))
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or detected,
        version_is=VersionIs.GIVEN if version else _known(settings),
        role=Role.ARGUMENTS if document.script else Role.CONFIG,
        document=document,
        facts=(*_launched(document), *facts_of(settings, place)),
        engine="pytorch",
        references=references,
        extra={"settings": settings, "functions": found, "named": _named(document)},
        overrides=frozenset(FACTS) if document.script else frozenset(),
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def _known(settings: Settings) -> VersionIs:
    """Older files tell their version by their names; Python is taken for the current one's."""
    return VersionIs.ASSUMED if settings.is_current else VersionIs.DETECTED


def _settings(document: Document) -> tuple[Settings, tuple[str, ...], Place]:
    """The settings of a document, the functions that give a configuration, and where it begins."""
    start = document.lines.place(0)
    if document.code is not None:
        named = drafts(Python(document))
        draft = _draft(document)
        assert draft is not None
        return Settings(values=draft.values, tree=draft.tree()), tuple(named), draft.place
    command = _command(document)
    if command is not None:
        return _of_command(command, start), (), command.words[0].place
    assert document.tree is not None
    settings = Settings(values=written(document.tree), tree=document.tree, is_current=False)
    return replace(settings, counts_pieces=_generation(settings) == FIRST), (), start


def _draft(document: Document) -> Draft | None:
    """The configuration of a file: of several functions the last, for which the others were written."""
    named = drafts(Python(document))
    return list(named.values())[-1] if named else None


def _command(document: Document) -> Command | None:
    """The last command that starts torchtitan."""
    commands = document.script.all_commands if document.script is not None else ()
    found = [
        each
        for each in commands
        if any(word.text.removeprefix("./").endswith(ENTRIES) for word in each.words)
    ]
    return found[-1] if found else None


def _of_command(command: Command, start: Place) -> Settings:
    """Flags of a command over the configuration function that it names, where torchtitan ships that."""
    given = flags(command.words)
    sections: dict[str, dict[str, Node]] = {}
    for option, (word, values) in given.items():
        section, dot, key = option.replace("-", "_").partition(".")
        if dot and values:
            sections.setdefault(section, {})[key] = _value(word, values[0])
    tree = Node(
        value={name: Node(value=dict(keys), place=start) for name, keys in sections.items()},
        place=command.words[0].place,
    )
    named = given.get("config", (None, ()))[1]
    recipe = shipped().recipes.get(named[0].text) if named else None
    base = (
        {
            "model.name": Node(value=recipe.module, place=named[0].place),
            **{name: setting(value, named[0].place) for name, value in recipe.settings.items()},
        }
        if recipe
        else {}
    )
    chosen: dict[str, Node] = {}
    for word in command.words:
        if word.text.startswith(SUBCOMMAND):
            mode = word.text.removeprefix(SUBCOMMAND).replace("-", "_")
            chosen["activation_checkpoint.mode"] = Node(value=mode, place=word.place)
    is_current = not any(option.startswith("job.") for option in given) and not _of_file(command)
    return Settings(
        values={**base, **written(tree), **chosen},
        tree=tree,
        is_whole=recipe is not None,
        is_current=is_current,
    )


def _value(option: Word, word: Word) -> Node:
    """The value of a flag: a whole number, else its text."""
    text = word.text
    is_number = text.removeprefix("-").isdecimal()
    value = int(text) if is_number else "${" + text + "}" if word.is_open and not is_open(text) else text
    return Node(value=value, place=word.place, key=option.place)


def _of_file(command: Command) -> Word | None:
    """The TOML that a command names, by its flag or by CONFIG_FILE."""
    given = flags(command.words)
    for option in OLD_FILES:
        if option in given and given[option][1]:
            return given[option][1][0]
    return command.variables.get("CONFIG_FILE")


def _named(document: Document) -> tuple[Word | None, Word | None]:
    """Module and function that a command names."""
    command = _command(document)
    given = flags(command.words) if command is not None else {}
    words = [given[key][1][:1] if key in given else () for key in ("module", "config")]
    return words[0][0] if words[0] else None, words[1][0] if words[1] else None


def _references(document: Document) -> Iterator[Reference]:
    command = _command(document)
    file = _of_file(command) if command is not None else None
    if file is not None and not file.is_open and not is_open(file.text):
        yield Reference(file=file.text, place=file.place, said="the configuration of torchtitan")


def _launched(document: Document) -> Iterator[Fact]:
    """NGPU of run_train.sh is the number of devices of a node."""
    command = _command(document)
    count = command.variables.get("NGPU") if command is not None else None
    if count is not None and count.text.isdigit() and "run_train.sh" in document.text:
        yield fact("devices_per_node", int(count.text), count.place, "NGPU")


def _generation(settings: Settings) -> str:
    """The version by names that came and went: local_batch_size in 0.1, the section quantize in 0.2."""
    tables = settings.tree.table
    if "quantize" in tables or "hf_assets_path" in (tables["model"].table if "model" in tables else ()):
        return "0.2"
    training = tables["training"].table if "training" in tables else {}
    return FIRST if "batch_size" in training or "experimental" in tables else "0.1"
