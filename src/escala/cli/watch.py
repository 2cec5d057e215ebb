"""`escala watch`: any command run, sampled and recorded."""

import sys

import click

from escala.cli.options import Number, Whole, examples, json_option
from escala.cli.output import console, json_bytes, note
from escala.cli.verb import Verb

EXAMPLES = (
    "escala watch -- ./train.sh --lr 3e-4",
    "escala watch -o run7 --every 5 -- ./train.sh",
)


@click.command(
    "watch", cls=Verb, epilog=examples(*EXAMPLES), context_settings={"allow_interspersed_args": False}
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-o", "--out", metavar="DIR", help="Folder of the files; watch, watch-2, ... if not given.")
@click.option(
    "--every",
    type=Number(0.1, 3600.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between samples.",
)
@click.option("--prometheus", type=Whole(1, 65535), metavar="PORT", help="Serve the last sample on a port.")
@json_option
def command(
    command: tuple[str, ...], out: str | None, every: float, prometheus: int | None, as_json: bool
) -> int:
    """Run COMMAND as it is, sample what it and the node use, and find its steps.

    Its output, input, signals and exit code go through. DIR gets samples.jsonl, output.log with times,
    run.json for `escala verify` and metrics.prom. The summary goes to stderr, with --json as JSON.
    """
    from escala.measurement.sampling.extra import require_libraries, require_linux

    require_linux("watch")
    require_libraries("watch")
    from escala.measurement.watch.command import signals_held

    with signals_held() as held:
        from escala.measurement.watch.run import Request
        from escala.report.watch_text import print_watched
        from escala.report.watchfile import watched

        asked = Request(words=command, folder=out, every_s=every, port=prometheus)
        document = watched(asked, held, note)
    if as_json:
        sys.stderr.write(json_bytes(document).decode())
    else:
        print_watched(console(sys.stderr), document)
    return document.exit_code
