"""A verb of the command line: its options take settings, and an error about a setting names its place."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import click
from click.core import ParameterSource

from escala.cli.settings import (
    COMMAND_LINE_ONLY,
    DEFAULT,
    FLAG,
    USER,
    VARIABLE,
    Settings,
    key_of,
    read_settings,
    settable,
    variable_of,
)
from escala.errors import EscalaError, InvalidInput

# Options of which a person gives one or the other; the one that is given more directly wins.
RIVALS: Final = (
    (("cluster",), ("gpu", "gpus_per_node", "network")),
    (("gpus",), ("min_gpus", "max_gpus")),
)
FOUND: Final = "escala.settings"


class Switch(click.Option):
    """An option that is on or off; its opposite, --no-..., undoes a setting and is left out of the help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The help of --name alone."""
        opposites, self.secondary_opts = self.secondary_opts, []
        try:
            return super().get_help_record(ctx)
        finally:
            self.secondary_opts = opposites


class Verb(click.Command):
    """A command whose options may also stand in files and variables."""

    is_patient = False
    """Whether it works although a file of settings is broken."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        for each in self.params:
            if isinstance(each, click.Option):
                key = key_of(each)
                each.allow_from_autoenv = key not in COMMAND_LINE_ONLY
                if each.name != key.replace("-", "_") and each.allow_from_autoenv:
                    each.envvar = variable_of(self.name or "", key)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Flags, then settings; alone, without the group that names the variables, no setting applies."""
        if ctx.parent is None or ctx.auto_envvar_prefix is None:
            return super().parse_args(ctx, args)
        settings = ctx.meta[FOUND] = settings_of(ctx.find_root())
        ctx.default_map = settings.defaults(self)
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = error.param.name if error.param else None
            raise click.UsageError(f"{error.format_message().rstrip('.')}{_told(ctx, [name])}", ctx) from None
        if settings.faults and not self.is_patient:
            raise InvalidInput(settings.faults[0])
        _drop_weaker(ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error about what a setting says names the place of the setting."""
        try:
            return super().invoke(ctx)
        except EscalaError as error:
            error.args = (f"{error}{_told(ctx, _meant(ctx, str(error)))}",)
            raise

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """--help, which no variable gives."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.allow_from_autoenv = False
        return option


def settings_of(root: click.Context) -> Settings:
    """What is set for the verbs of the program."""
    assert isinstance(root.command, click.Group)
    return read_settings(root.command.list_commands(root), cache(lambda: commands_of(root)))


def commands_of(group: click.Context) -> dict[str, click.Command]:
    """The verbs of the group; those of a group in it by both names, as "data prepare"."""
    return dict(_commands(group, group.command))


def _commands(ctx: click.Context, group: click.Command) -> Iterator[tuple[str, click.Command]]:
    assert isinstance(group, click.Group)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        if isinstance(found, click.Group):
            yield from ((f"{name} {inner}", command) for inner, command in _commands(ctx, found))
        elif found is not None:
            yield name, found


def _level(ctx: click.Context, name: str) -> int:
    """How directly a parameter was given: by flag, variable, file of the folder, file of the user, or not."""
    source, settings = ctx.get_parameter_source(name), ctx.meta[FOUND]
    if source is ParameterSource.DEFAULT_MAP:
        given = settings.of(ctx.command.name, _keys(ctx)[name])
        return USER if given is None else int(given.level)
    known = {ParameterSource.COMMANDLINE: FLAG, ParameterSource.ENVIRONMENT: VARIABLE}
    return known.get(source, DEFAULT) if source is not None else DEFAULT


def _drop_weaker(ctx: click.Context) -> None:
    """Of two ways to say the same, the one that was given less directly is as if it had not been given."""
    for one, other in RIVALS:
        strengths = [min((_strength(ctx, name) for name in side), default=DEFAULT) for side in (one, other)]
        for side, rival in ((one, strengths[1]), (other, strengths[0])):
            for name in side:
                if rival < _strength(ctx, name) < DEFAULT:
                    ctx.params[name] = None
    if ctx.params.get("method") != "lora" and _strength(ctx, "method") < _strength(ctx, "lora_rank"):
        ctx.params["lora_rank"] = None


def _strength(ctx: click.Context, name: str) -> int:
    return DEFAULT if ctx.params.get(name) is None else _level(ctx, name)


def _keys(ctx: click.Context) -> dict[str, str]:
    """Keys of the options by the names that click gives them."""
    return {str(option.name): key for key, option in settable(ctx.command).items()}


def _meant(ctx: click.Context, message: str) -> list[str]:
    """Parameters from settings that a message speaks of, by their option or by their value."""
    names = [name for name in _keys(ctx) if FLAG < _level(ctx, name) < DEFAULT] if FOUND in ctx.meta else []
    return [name for name in names if any(_occurs(word, message) for word in _words(ctx, name))]


def _words(ctx: click.Context, name: str) -> Sequence[str]:
    """The option, and what its value looks like in a message."""
    value = ctx.params.get(name)
    if isinstance(value, tuple):
        words = [word for each in value for word in re.split("[=,]", each) if word]
    else:
        words = [] if value in (None, "") or isinstance(value, bool) else [str(value)]
    return [f"--{_keys(ctx)[name]}", *words]


def _occurs(word: str, message: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", message) is not None


def _told(ctx: click.Context, names: Sequence[str | None]) -> str:
    """Where the parameters of settings were set, as the end of a message."""
    settings: Settings = ctx.meta[FOUND] if FOUND in ctx.meta else Settings(found=(), files={}, faults=())
    places = []
    for name in names:
        if name is None or name not in _keys(ctx) or not FLAG < _level(ctx, name) < DEFAULT:
            continue
        given = settings.of(str(ctx.command.name), _keys(ctx)[name])
        places += [f"{given.key} is set in {given.origin}"] if given else []
    return "".join(f"; {place}" for place in places)
