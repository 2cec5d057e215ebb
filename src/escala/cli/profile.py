"""`escala profile`: what a training step does and waits for, recorded before or run here."""

from collections.abc import Mapping
from typing import Any

import click

from escala.cli.options import examples, json_option
from escala.cli.output import note, progressing, show
from escala.cli.profile_step import profile_step, refuse_step_options, step_options
from escala.cli.verb import Verb

EXAMPLES = (
    "escala profile traces/ --gpu h100-sxm",
    "escala profile rank0.json rank1.json --plan plan.json --out profile.json",
    "escala profile train:make --what-if amp,compile,workers",
    "escala profile llama-3.2-1b --cluster bench.json",
)


@click.command("profile", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("targets", nargs=-1, required=True)
@click.option("--gpu", metavar="NAME", help="Device of the catalog, where the traces do not name it.")
@click.option("--cluster", metavar="NAME|FILE", help="Cluster whose device it is, such as a bench.json.")
@click.option("--plan", metavar="FILE|N", help="Plan of the traced run, to see its prediction beside.")
@click.option("--out", metavar="FILE", help="Write the profile.")
@step_options
@json_option
def command(targets: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Say where a training step goes, what it waits for, and what to change first.

    TARGETS are Chrome traces of PyTorch's profiler (.json or .json.gz), one a rank, or folders of them. Or a
    step is run here: of package.module:function, or of a network (a name, a config.json, hf:owner/name).
    """
    from escala.report.step_view import refuse_half_named, runs_here

    refuse_half_named(targets)
    if len(targets) == 1 and runs_here(targets[0]):
        return profile_step(targets[0], given, as_json)
    refuse_step_options(given)
    _read(targets, given, as_json)
    return 0


def _read(traces: tuple[str, ...], given: Mapping[str, Any], as_json: bool) -> None:
    from escala.cli.question import machine_of
    from escala.progress import Pace
    from escala.report.profile_text import print_profile
    from escala.report.profile_view import device_of, profiled, save_profile, trace_bytes

    device = device_of(given["gpu"], machine_of(given["gpu"], given["cluster"]))
    with progressing() as progress:
        pace = Pace("reading", trace_bytes(traces), progress)
        document = profiled(traces, device, given["plan"], pace.took)
    if given["out"] is not None:
        save_profile(document, given["out"])
        note(f"wrote {given['out']}")
    show(document, as_json, print_profile)
