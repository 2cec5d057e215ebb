"""`escala check`: what is wrong with people's own files, whether the job fits, how fast it is, what helps."""

import re
from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import Number, Whole, examples, json_option, switch, where_options
from escala.cli.output import show, working
from escala.cli.verb import Verb
from escala.errors import InvalidInput

if TYPE_CHECKING:
    from escala.checking.machines import Missing
    from escala.foreign.facts import Value
    from escala.foreign.jobs import Job
    from escala.model.cluster import Cluster

EXAMPLES = (
    "escala check ds_config.json --model qwen3-8b --gpu b200 --gpus 8",
    "escala check ds_config.json --fix",
    "escala check ds_config.json --version deepspeed=0.19 --json",
)
FACTS = {"model": "model", "seq": "sequence_tokens", "global_batch": "global_batch"}
"""Options that say what a file could say, with the name of the fact; what is given here counts first."""

NUMBERS = re.compile(r"\d+(\.|\w)*")


@click.command("check", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("--model", metavar="NAME", help="Network: as in escala plan; else what the files name.")
@where_options
@click.option("--seq", type=Whole(1, 100_000_000), help="Sequence length in tokens.")
@click.option("--global-batch", type=Whole(1, 1_000_000_000), help="Sequences in one step.")
@click.option("--tokens", type=Number(1.0, 1e18, suffixes=True), help="Tokens of the whole run.")
@click.option(
    "--version", "versions", multiple=True, metavar="TOOL=N", help="Version that a tool's file is for."
)
@switch("--fix/--no-fix", help="Write corrected copies beside the files: NAME.fixed.ENDING.")
@json_option
def command(files: tuple[str, ...], fix: bool, as_json: bool, **given: Any) -> int:
    """Read the FILES of one job: what is wrong in them, does it fit, how fast, what would be better.

    FILES are those of other tools in any mix: launch lines and scripts, configurations, training code.
    Nothing of them is run. Files that they name are read too; - is what is piped in. Without a model or a
    device the answer is what the files alone say, and what to add.
    """
    from escala.foreign.documents import STDIN
    from escala.foreign.jobs import read_job
    from escala.report.check_text import print_checked
    from escala.report.check_view import checked

    facts: dict[str, Value] = {fact: given[name] for name, fact in FACTS.items() if given[name] is not None}
    if given["gpus"] is not None:
        facts["devices"] = given["gpus"]
    if fix and STDIN in files:
        raise InvalidInput("--fix writes beside a file, and - is none; save what is piped in to a file")
    job = read_job(files, facts, versions_of(given["versions"]))
    cluster, lacking = cluster_of_job(job, given)
    with working("checking"):
        document = checked(job, cluster, lacking, total_tokens=given["tokens"], writes_fix=fix)
    show(document, as_json, print_checked)
    return 0 if document.is_fine else 1


def cluster_of_job(job: "Job", given: dict[str, Any]) -> "tuple[Cluster | None, Missing | None]":
    """The cluster of options and files, or what is missing for one."""
    from escala.checking.machines import machine_of
    from escala.checking.subjects import chief_of
    from escala.cli.question import cluster_of, refuse_unknown

    refuse_unknown(given)
    machine, lacking = machine_of(chief_of(job), given)
    return (None if machine is None else cluster_of(machine, machine["gpus"])), lacking


def versions_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Versions by tool, from 'transformers=4.46'."""
    found: dict[str, str] = {}
    for text in texts:
        tool, equals, version = text.partition("=")
        if not equals or not tool.strip() or not version.strip():
            raise InvalidInput(f"--version '{text[:40]}' is no TOOL=N; write for example transformers=4.46")
        if not NUMBERS.match(version.strip()):
            raise InvalidInput(
                f"--version '{text[:40]}' has no number of a version; write for example {tool}=1.2"
            )
        found[tool.strip().lower()] = version.strip()
    return found
