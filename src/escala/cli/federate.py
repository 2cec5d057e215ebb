"""`escala federate`: learning where the data are. Knows the names of its verbs, none of their options."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import click

from escala.errors import near

VERBS: Final = {
    "assess": "Federate, centralise, or each alone: costs, criteria, flip points.",
    "simulate": "Simulate the rounds of a population on this machine.",
    "forecast": "Say from a pilot how many more rounds a target takes.",
    "privacy": "Say what noise costs in privacy, by the sampler that is used.",
    "run": "Run a scenario on Flower, here or on several machines.",
    "audit": "Check and show what a run wrote down.",
}


class Federated(click.Group):
    """Loads a verb's module when the verb is asked for; lists those that are there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of the help."""
        return [name for name in VERBS if find_spec(_module(name)) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(_module(cmd_name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their first line, without loading any."""
        known = self.list_commands(ctx)
        if known:
            with formatter.section("Verbs"):
                formatter.write_dl([(name, VERBS[name]) for name in known])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb of the arguments; an unknown one is refused with near names."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            close = near(args[0], known)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
            raise click.UsageError(f"unknown verb 'federate {args[0]}': {hint}", ctx)
        return super().resolve_command(ctx, args)


def _module(name: str) -> str:
    return f"escala.cli.federate_{name}"


@click.group("federate", cls=Federated, invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Decide, simulate and run federated learning: data stay where they are."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
