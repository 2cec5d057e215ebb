"""`escala bench`: measure this machine, so that plans are made with its own numbers."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from escala.cli.options import Number, Whole, examples, json_option, switch
from escala.cli.output import json_bytes, note, progressing, quiet, show, working
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from escala.formats.bench_record import Bench
    from escala.measurement.bench.request import Request

EXAMPLES = (
    "escala bench",
    "escala bench --device cpu --ranks 2 --budget 60 -o cpu.json",
    "torchrun --nproc-per-node 8 -m escala bench",
    "escala bench --ladder",
)
INTERRUPTED = 130


@click.command("bench", cls=Verb, epilog=examples(*EXAMPLES))
@click.option("--device", metavar="NAME", help="cuda or cpu; cuda where there is one.")
@click.option(
    "--budget",
    type=Number(5.0, 3600.0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for everything.",
)
@click.option(
    "--ranks", type=Whole(1, 64), default=1, show_default=True, help="Ranks to start here, for its links."
)
@click.option(
    "--folder", metavar="DIR", help="Where storage is timed; the usual temporary folder if not given."
)
@click.option(
    "-o", "--out", metavar="FILE", default="bench.json", show_default=True, help="File of the result."
)
@switch("--ladder/--no-ladder", help="Only show one matrix product from plain Python up to a GPU.")
@json_option
def command(
    device: str | None, budget: float, ranks: int, folder: str | None, out: str, ladder: bool, as_json: bool
) -> int:
    """Measure devices, memory, links and storage of this machine into a file that `--cluster` takes.

    Under torchrun all ranks measure together. Ctrl-C ends it early and keeps what is there.
    """
    began_s = time.perf_counter()
    if ladder:
        return _ladder(as_json)
    from escala.measurement.bench import request

    kind = request.checked_kind(device)
    where = request.checked_folder(folder)
    request.refuse_unwritable_file(Path(out))
    request.refuse_both(ranks)
    request.refuse_without_torch(kind, ranks)
    asked = request.Request(kind=kind, budget_s=budget, folder=where, started_s=began_s)
    options = [
        f"--budget={budget}",
        f"--folder={where}",
        "--ranks=1",
        *([f"--device={kind}"] if kind else []),
    ]
    return _bench(asked, ranks, options, out, as_json)


def _bench(asked: "Request", ranks: int, options: list[str], out: str, as_json: bool) -> int:
    """Measure with so many ranks here, then write and show what the first one has gathered."""
    from escala.measurement.bench.local import local_ranks
    from escala.report.bench_text import print_bench
    from escala.wholefile import write_whole

    with local_ranks(ranks, options):
        document = measured(asked)
    if document is None:
        return 0
    write_whole(Path(out), json_bytes(document))
    show(document, as_json, print_bench)
    note(f"wrote {out}: interrupted, with what was there" if document.is_interrupted else f"wrote {out}")
    return INTERRUPTED if document.is_interrupted else 0


def measured(asked: "Request") -> "Bench | None":
    """Measure this machine, saying how far it is; None in every rank but the first."""
    from escala.measurement.bench.request import is_first

    with progressing() if is_first() else nullcontext(quiet) as progress:
        from escala.measurement.bench.run import bench

        return bench(asked, progress)


def _ladder(as_json: bool) -> int:
    from escala.measurement.bench.ladder import ladder
    from escala.report.bench_text import print_ladder

    with working("multiplying matrices"):
        document = ladder()
    show(document, as_json, print_ladder)
    return 0
