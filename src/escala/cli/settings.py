"""Settings: what options take where no flag gives them. Knows files, variables and their order, no meaning.

A flag wins over a variable of the environment, that over ./escala.toml, that over the file of the user, that
over the default. What is wrong in a file is kept as a fault, so that `--help` and `doctor` work all the same.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from escala.errors import InvalidInput, near, one_line, unknown

PREFIX: Final = "ESCALA"
CONFIG_VARIABLE: Final = f"{PREFIX}_CONFIG"
LOCAL_FILE: Final = "escala.toml"
USER_FILE: Final = "config.toml"
SCHEMA: Final = "escala/settings@1"
# A file that lies in a folder must not say where escala writes.
COMMAND_LINE_ONLY: Final = (
    *("folder", "force", "help", "html", "keep-traces", "out", "output", "save-plan", "svg", "timeline"),
)
FLAG, VARIABLE, LOCAL, USER, DEFAULT = range(5)

Commands = Mapping[str, click.Command]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option of a verb with the value that a file or a variable gives it, and which one that is."""

    verb: str
    key: str
    value: str | list[str]
    origin: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The strongest setting of every option, the files that were looked for, and what is wrong in them."""

    found: tuple[Setting, ...]
    files: dict[str, str]
    faults: tuple[str, ...]

    def of(self, verb: str, key: str) -> Setting | None:
        """The setting of one option."""
        return next((each for each in self.found if (each.verb, each.key) == (verb, key)), None)

    def defaults(self, command: click.Command) -> dict[str, Any]:
        """The values from files, by the names that click gives the parameters."""
        names = {key: option.name for key, option in settable(command).items() if option.name}
        mine = [each for each in self.found if each.verb == command.name and each.level > VARIABLE]
        return {names[each.key]: self._given(command, each) for each in mine}

    def _given(self, command: click.Command, each: Setting) -> str | list[str]:
        """One value also as a list, where an option may be repeated."""
        is_one = settable(command)[each.key].multiple and isinstance(each.value, str)
        return [str(each.value)] if is_one else each.value


def key_of(option: click.Parameter) -> str:
    """The name of an option as files write it: its long form without dashes in front."""
    return max(option.opts, key=len).lstrip("-")


def variable_of(verb: str, key: str) -> str:
    """The variable that sets an option: ESCALA_PLAN_GLOBAL_BATCH."""
    return f"{PREFIX}_{verb}_{key}".upper().replace("-", "_").replace(" ", "_")


def table_of(verb: str) -> str:
    """The name of a verb's table: [plan], [data.prepare]."""
    return verb.replace(" ", ".")


def settable(command: click.Command) -> dict[str, click.Option]:
    """The options of a verb that settings may give, by key."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {key_of(each): each for each in options if key_of(each) not in COMMAND_LINE_ONLY}


def read_settings(verbs: Iterable[str], load: Callable[[], Commands]) -> Settings:
    """Everything that files and variables set; nothing is raised, faults are kept.

    The commands are loaded only where something is set that may belong to one of the verbs.
    """
    found, faults = _from_environment(verbs, load)
    files: dict[str, str] = {}
    for path, level, is_named in _places():
        if not os.path.lexists(path) and not is_named:
            files[str(path)] = "absent"
            continue
        settings, wrong = _from_file(path, level, load())
        files[str(path)] = "faulty" if wrong else f"{len(settings)} set"
        found, faults = found + settings, faults + wrong
    strongest: dict[tuple[str, str], Setting] = {}
    for each in found:
        strongest.setdefault((each.verb, each.key), each)
    return Settings(found=tuple(strongest.values()), files=files, faults=tuple(faults))


def _places() -> Iterator[tuple[Path, int, bool]]:
    """Files to read, the strongest first; one that a variable names has to exist."""
    yield Path(LOCAL_FILE), LOCAL, False
    named = os.environ.get(CONFIG_VARIABLE)
    user = Path(named) if named else Path(click.get_app_dir("escala")) / USER_FILE
    yield user, USER, named is not None and named != ""


def _from_environment(verbs: Iterable[str], load: Callable[[], Commands]) -> tuple[list[Setting], list[str]]:
    """Settings of variables; one that begins like those of a verb and is none of them is a fault."""
    found: list[Setting] = []
    faults: list[str] = []
    starts = tuple(variable_of(verb, "") for verb in verbs)
    given = {name: value for name, value in os.environ.items() if value and name.startswith(starts)}
    for verb, command in load().items() if given else ():
        known = {variable_of(verb, key): key for key in settable(command)}
        for name in [name for name in given if name.startswith(variable_of(verb, ""))]:
            if name in known:
                key, value = known[name], given[name]
                values = value.split() if settable(command)[key].multiple else value
                found.append(Setting(verb=verb, key=key, value=values, origin=name, level=VARIABLE))
            else:
                rest = name.removeprefix(variable_of(verb, "")).lower().replace("_", "-")
                close = [variable_of(verb, key) for key in near(rest, settable(command))]
                faults.append(f"unknown variable '{name}': {_hint(close, known)}")
    return found, faults


def _hint(close: Sequence[str], known: Iterable[str]) -> str:
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"


def _from_file(path: Path, level: int, commands: Commands) -> tuple[list[Setting], list[str]]:
    found: list[Setting] = []
    faults: list[str] = []
    try:
        tables = _tables(path)
    except InvalidInput as error:
        return [], [str(error)]
    for verb, table in _by_verb(tables, commands):
        if verb not in commands or not isinstance(table, Mapping):
            faults.append(_table_fault(path, verb, table, commands))
            continue
        for name, value in table.items():
            key = str(name).replace("_", "-")
            fault = _fault(path, commands[verb], key, value)
            fault = fault or (
                f"{path}: {key} stands twice in [{table_of(verb)}]" if _has(found, verb, key) else ""
            )
            faults += [fault] if fault else []
            found += [] if fault else [_setting(path, level, verb, key, value)]
    return found, faults


def _by_verb(tables: Mapping[str, Any], commands: Commands) -> Iterator[tuple[str, Any]]:
    """Tables by the name of their verb; those in the table of a group by both names."""
    for name, table in tables.items():
        is_group = isinstance(table, Mapping) and any(verb.startswith(f"{name} ") for verb in commands)
        if is_group:
            yield from ((f"{name} {inner}", keys) for inner, keys in table.items())
        else:
            yield name, table


def _has(found: Iterable[Setting], verb: str, key: str) -> bool:
    return any((each.verb, each.key) == (verb, key) for each in found)


def _tables(path: Path) -> Mapping[str, Any]:
    import tomllib

    from escala.inputs import read_text

    text = read_text(path)
    try:
        return {
            name: table for name, table in tomllib.loads(text).items() if (name, table) != ("schema", SCHEMA)
        }
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        said = str(error).strip() if isinstance(error, ValueError) else "nested too deeply"
        reason = one_line(f"{said[:1].lower()}{said[1:]}".replace(" (at ", " at ").removesuffix(")"))
        raise InvalidInput(f"{path} is not TOML ({reason}); correct it there") from None


def _table_fault(path: Path, verb: str, table: object, commands: Commands) -> str:
    """What is wrong with a table that is none, or that belongs to no verb."""
    if verb in commands:
        return f"{path}: {table_of(verb)} is no table; write [{table_of(verb)}] and the options below it"
    owners = [name for name in commands if verb.replace("_", "-") in settable(commands[name])]
    if owners and not isinstance(table, Mapping):
        tables = " or ".join(f"[{table_of(name)}]" for name in owners)
        return f"{path}: '{one_line(verb)}' stands outside a table; write it below {tables}"
    names = list(map(table_of, commands))
    return f"{path}: {unknown('table', table_of(verb), names, f'there are {_listed(names)}')}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _fault(path: Path, command: click.Command, key: str, value: object) -> str:
    """What is wrong with one key or with the kind of its value; empty when nothing is."""
    options, table = settable(command), table_of(str(command.name))
    if key in options:
        is_list = isinstance(value, list) and options[key].multiple
        if isinstance(value, Mapping) or (isinstance(value, list) and not is_list):
            return f"{path}: {key} in [{table}] is no single value; write {key} = ..."
        return ""
    if key in [str(each.name) for each in command.params] or key in COMMAND_LINE_ONLY:
        return f"{path}: {key} in [{table}] can only be given on the command line"
    return f"{path}: unknown key '{one_line(key)}' in [{table}]: {_hint(near(key, options), options)}"


def _setting(path: Path, level: int, verb: str, key: str, value: object) -> Setting:
    texts = [_text(each) for each in value] if isinstance(value, list) else _text(value)
    return Setting(verb=verb, key=key, value=texts, origin=str(path), level=level)


def _text(value: object) -> str:
    """A value as a person writes it behind a flag."""
    return str(value).lower() if isinstance(value, bool) else str(value)
