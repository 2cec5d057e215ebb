"""`escala compare`: networks side by side, by what training and serving them costs."""

from typing import Any

import click

from escala.cli.options import Number, Whole, examples, json_option, where_options
from escala.cli.output import show, working
from escala.cli.verb import Verb

EXAMPLES = (
    "escala compare llama-3.1-8b mixtral-8x7b",
    "escala compare qwen3-32b qwen3-30b-a3b --gpu h100-sxm --gpus 2 --price 2.5",
    "escala compare llama-3.1-70b mixtral-8x22b --seq 8192 --json",
)


@click.command("compare", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("networks", nargs=-1, required=True, metavar="NETWORK...")
@where_options
@click.option(
    "--seq",
    type=Whole(1, 100_000_000),
    help="Tokens of a training sequence; 2,048, or the least context of the networks, if not given.",
)
@click.option(
    "--prompt", type=Whole(1, 10_000_000), default=1024, show_default=True, help="Tokens of a prompt."
)
@click.option(
    "--output", type=Whole(1, 10_000_000), default=256, show_default=True, help="Tokens of an answer."
)
@click.option("--batch", type=Whole(1, 1_000_000), help="Requests at once; as many as fit if not given.")
@click.option(
    "--weight-bytes",
    type=Number(0.25, 8.0),
    default=2.0,
    show_default=True,
    help="Bytes of a stored weight: 2 in 16 bit, 1 in fp8, 0.5 in 4 bit.",
)
@json_option
def command(networks: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Set networks side by side: size, training work, and an estimate of what serving them costs.

    The first NETWORK is the measure. With a machine (--gpu and --gpus, or --cluster) it says how long prompts
    and tokens take there, and with a price what a million tokens cost. Quality is not predicted: where a
    publication found two of them equally good, it is named.
    """
    from escala.cli.question import cluster_of
    from escala.formats.networks import find_network
    from escala.model.serving import Request
    from escala.report.compare_text import print_compared
    from escala.report.compare_view import compared

    request = Request(
        prompt_tokens=given["prompt"], output_tokens=given["output"], weight_bytes=given["weight_bytes"]
    )
    with working("comparing"):
        found = [find_network(each) for each in networks]
        is_named = given["gpu"] is not None or given["cluster"] is not None
        cluster = (
            cluster_of(given, given["gpus"] or (1 if given["cluster"] is None else None))
            if is_named
            else None
        )
        document = compared(found, cluster, request, given["seq"], given["batch"])
    show(document, as_json, print_compared)
