"""`escala profile`: what a recorded training step does and waits for."""

import click

from escala.cli.options import examples, json_option
from escala.cli.output import note, progressing, show
from escala.cli.verb import Verb

EXAMPLES = (
    "escala profile trace.json",
    "escala profile traces/ --gpu h100-sxm",
    "escala profile rank0.json rank1.json --plan plan.json --out profile.json",
)


@click.command("profile", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("traces", nargs=-1, required=True)
@click.option("--gpu", metavar="NAME", help="Device of the catalog, where the traces do not name it.")
@click.option("--cluster", metavar="NAME|FILE", help="Cluster whose device it is, such as a bench.json.")
@click.option("--plan", metavar="FILE|N", help="Plan of the run, to see its prediction beside.")
@click.option("--out", metavar="FILE", help="Write the profile.")
@json_option
def command(
    traces: tuple[str, ...],
    gpu: str | None,
    cluster: str | None,
    plan: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Read what PyTorch's profiler recorded: where the step goes, what it waits for, what to change first.

    TRACES are Chrome traces that it exported (.json or .json.gz), one a rank, or folders of them.
    """
    from escala.cli.question import machine_of
    from escala.report.profile_text import print_profile
    from escala.report.profile_view import device_of, profiled, save_profile, trace_bytes
    from escala.report.progress import Reading

    device = device_of(gpu, machine_of(gpu, cluster))
    with progressing() as progress:
        reading = Reading(trace_bytes(traces), progress)
        document = profiled(traces, device, plan, reading.took)
    if out is not None:
        save_profile(document, out)
        note(f"wrote {out}")
    show(document, as_json, print_profile)
