"""`escala doctor`: a report of the environment, to paste."""

from typing import TYPE_CHECKING

import click

from escala.cli.options import examples, json_option
from escala.cli.output import show
from escala.cli.settings import Setting, settable
from escala.cli.verb import Verb, commands_of, settings_of

if TYPE_CHECKING:
    from escala.report.doctor import Config


class Doctor(Verb):
    """Works although a file of settings is broken, since it shows what is wrong."""

    is_patient = True


@click.command("doctor", cls=Doctor, epilog=examples("escala doctor", "escala doctor --json"))
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show versions, machine, optional parts and settings; nothing secret, ready to paste."""
    from escala.report.doctor import doctor_view, print_doctor

    show(doctor_view(config_of(ctx)), as_json, print_doctor)


def config_of(ctx: click.Context) -> "Config":
    """Every option that a file or a variable sets, and what is wrong with them."""
    from escala.report.doctor import Config, OptionView

    assert ctx.parent is not None
    commands, settings = commands_of(ctx.find_root()), settings_of(ctx.find_root())
    options = tuple(
        OptionView(
            verb=each.verb,
            option=f"--{each.key}",
            value=each.value,
            origin=each.origin,
            fault=_fault(ctx, commands[each.verb], each),
        )
        for each in settings.found
    )
    return Config(files=settings.files, options=options, faults=settings.faults)


def _fault(ctx: click.Context, command: click.Command, given: Setting) -> str:
    """What the option says to the value; empty when it takes it."""
    option = settable(command)[given.key]
    try:
        for value in given.value if isinstance(given.value, list) else [given.value]:
            option.type.convert(value, option, ctx)
    except click.BadParameter as error:
        return error.message.rstrip(".")
    return ""
