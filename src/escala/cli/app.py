"""The entry point: the verbs, their help, and the exit codes. Knows no verb's options.

Exit codes: 0 ok, 1 the answer is no, 2 wrong input, 3 an optional part is not installed, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click

from escala import __version__
from escala.cli.settings import PREFIX
from escala.errors import EscalaError, near

NO: Final = 1
WRONG_INPUT: Final = 2
INTERRUPTED: Final = 130
LONGEST: Final = 1000  # letters of an error
BROKEN_PIPE: Final = 141  # what a program ends with that SIGPIPE kills

VERBS: Final = {
    "plan": "Rank the ways to train a network on a cluster.",
    "explain": "Say where one plan's time and memory go, and why it was chosen.",
    "emit": "Write a plan as files of other tools, or say which can express it.",
    "check": "Read other tools' files: what is wrong, does it fit, how fast, what helps.",
    "catalog": "Look up networks, devices, clusters and links with their sources.",
    "compare": "Set networks side by side: what they cost to train and to serve.",
    "bench": "Measure this machine, for plans with its own numbers.",
    "validate": "Score published measurements against what the model predicts.",
    "watch": "Run any command, sample what it uses, and find its steps.",
    "profile": "Say what a training step does and waits for, recorded or run here.",
    "trace": "Run a module of your own without data: FLOP, memory, and a network to plan.",
    "train": "Run a plan on a real model, and set predicted beside measured.",
    "export": "Write what a run has learned as files that transformers or peft load.",
    "scale": "Run a plan on several numbers of devices, and say what more devices lose.",
    "record": "Read the logs that a run left into one record.",
    "verify": "Compare a recorded run with what was predicted for its plan.",
    "calibrate": "Let measured runs correct the numbers that the next plan is made with.",
    "federate": "Decide, simulate and run federated learning.",
    "data": "Prepare text for training: tokens in memory-mapped shards.",
    "doctor": "Show versions, extras and settings, to paste into a report.",
    "demo": "Measure this machine briefly, plan on it and on 8 H100, explain the result.",
}
EPILOG: Final = """\b
Examples:
  escala plan llama-3.1-8b --gpus 8 --gpu h100-sxm
  escala explain 1
  escala catalog h100-sxm
"""
SETTINGS: Final = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "auto_envvar_prefix": PREFIX,
}


class Verbs(click.Group):
    """Loads a verb's module when the verb is asked for; suggests verbs for those that do not exist."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"escala.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their first line, without loading any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb of the arguments; an unknown one is refused with near names."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = near(args[0], VERBS)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(VERBS)}"
            raise click.UsageError(f"unknown verb '{args[0]}': {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs, context_settings=SETTINGS, epilog=EPILOG, no_args_is_help=False, invoke_without_command=True
)
@click.version_option(__version__, "-V", "--version", message="escala %(version)s", allow_from_autoenv=False)
@click.help_option("-h", "--help", allow_from_autoenv=False)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Plan, predict and explain the distributed training of AI models."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code. Errors are one line on stderr."""
    _open_closed_streams()
    _never_fail_to_print()
    try:
        code = _code(cli.main(arguments, prog_name="escala", standalone_mode=False))
        sys.stdout.flush()
    except EscalaError as error:
        return _fail(str(error), error.exit_code)
    except click.ClickException as error:
        return _fail(_text(error), WRONG_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _close_stdout()
        return BROKEN_PIPE
    except SystemExit as end:  # click ends with 1 where nobody reads stdout, with 0 after completing a word
        _close_stdout()
        return BROKEN_PIPE if end.code else 0
    except OSError as error:
        _close_stdout()
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{(error.strerror or str(error)).lower()}", WRONG_INPUT)
    return code


def _code(result: Any) -> int:
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    text = " ".join(message.split())
    short = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    with suppress(OSError):  # when nobody reads stderr, the exit code still says it
        sys.stderr.write(f"error: {short}\n")
    return code


def _text(error: click.ClickException) -> str:
    """The message of click with near options, without its usage lines."""
    if isinstance(error, click.NoSuchOption):
        every = error.possibilities or _options(error.ctx)
        close = near(error.option_name, [each for each in every if not each.startswith("--no-")])
        hint = f"did you mean {' or '.join(close)}?" if close else "see --help"
        return f"unknown option '{error.option_name}': {hint}"
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _options(ctx: click.Context | None) -> list[str]:
    if ctx is None:
        return []
    every = [name for each in ctx.command.get_params(ctx) for name in each.opts]
    return [name for name in every if name.startswith("--")]


def _open_closed_streams() -> None:
    """A stream that was closed before escala began (`>&-`) swallows what is written to it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 # lives as long as we


def _never_fail_to_print() -> None:
    """Letters that the terminal's encoding lacks become question marks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _close_stdout() -> None:
    """Python flushes stdout once more at its end; what cannot be written goes nowhere."""
    with suppress(OSError, ValueError):  # stdout is no file (a test's buffer), or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
