"""`escala trace`: a module of one's own, run without data, as a network that can be planned."""

import click

from escala.cli.options import Whole, examples, json_option, shape_option
from escala.cli.output import note, progressing, show, stdout_kept
from escala.cli.verb import Verb

EXAMPLES = (
    "escala trace model.py:build --shape 3,224,224",
    "escala trace mypackage.model:gpt --seq 2048 -o gpt.json",
    "escala trace train.py:job --json",
)


@click.command("trace", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("target")
@click.option(
    "--seq", type=Whole(1, 100_000_000), help="Tokens of a sample, where the function gives no inputs."
)
@shape_option
@click.option("-o", "--output", metavar="FILE", help="Write the network, to plan it without PyTorch.")
@json_option
def command(target: str, seq: int | None, shape: str | None, output: str | None, as_json: bool) -> None:
    """Run the module that TARGET makes, without data, and say what a sample costs, module by module.

    TARGET is package.module:function or FILE.py:function; your code is run, on tensors that have a shape and
    no data. The function returns a torch.nn.Module, (module, inputs), or (module, inputs, loss): inputs are
    an example batch or a function of the samples of a batch, loss is called as loss(module, inputs).
    """
    from escala.report.module_text import print_module
    from escala.report.module_view import save_module, traced_module

    with stdout_kept(), progressing() as progress:
        found = traced_module(target, seq, shape, progress)
    if output is not None:
        save_module(found, output)
        note(f"wrote {output}")
    show(found.view, as_json, print_module)
