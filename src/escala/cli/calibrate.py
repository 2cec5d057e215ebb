"""`escala calibrate`: one's own runs correct the next plan."""

from pathlib import Path

import click

from escala.cli.options import examples, json_option
from escala.cli.output import note, progressing, show
from escala.cli.verb import Verb

EXAMPLES = (
    "escala calibrate run.json:plan.json",
    "escala calibrate run.json:plan.json -o own.toml",
    "escala plan llama-3.1-8b --gpus 8 --gpu h100-sxm --calibration own.toml",
)


@click.command("calibrate", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("runs", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Write what --calibration of other verbs takes.")
@json_option
def command(runs: tuple[str, ...], output: str | None, as_json: bool) -> None:
    """Let measured RUNS correct the numbers of their engine, device and links, as far as they inform them.

    Each of RUNS is a run and its plan: RUN:PLAN (run.json:plan.json), a folder that holds both, or what
    `escala verify -o` wrote. Few runs move little; what no run informs stays.
    """
    from escala.measurement.bench.request import refuse_unwritable_file
    from escala.report.calibrate_text import print_calibrated
    from escala.report.calibrate_view import calibration_answer, save_calibration

    if output is not None:
        refuse_unwritable_file(Path(output), "--output")
    with progressing() as progress:
        document = calibration_answer(runs, progress)
    if output is not None:
        save_calibration(document, output)
        note(f"wrote {output}")
    show(document, as_json, print_calibrated)
