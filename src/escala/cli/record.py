"""`escala record`: the logs that a run left, as one record."""

import click

from escala.cli.options import Whole, examples, json_option
from escala.cli.output import note, show, working
from escala.cli.verb import Verb

EXAMPLES = (
    "escala record train.log",
    "escala record train.log nvidia-smi.csv --out run.json",
    "escala record mlruns --json",
)


@click.command("record", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--warmup", type=Whole(0, 1_000_000), help="Samples of step time to drop, where a tenth is wrong."
)
@click.option("--out", metavar="FILE", help="Write the record, for escala verify.")
@json_option
def command(logs: tuple[str, ...], warmup: int | None, out: str | None, as_json: bool) -> None:
    """Read the logs of one run: step time, rates, memory, power and energy, and what they do not say.

    LOGS are files, or folders of them: HF trainer_state.json, stdout of Megatron-LM, torchtitan or DeepSpeed,
    Lightning metrics.csv, TensorBoard, MLflow, W&B, nvidia-smi, DCGM, CodeCarbon, Zeus. Names do not matter.
    """
    from escala.report.record_text import print_record
    from escala.report.runfile import recorded, save_run

    with working("reading"):
        document = recorded(logs, warmup)
    if out is not None:
        save_run(document, out)
        note(f"wrote {out}")
    show(document, as_json, print_record)
