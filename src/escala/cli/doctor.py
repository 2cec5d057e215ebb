"""`escala doctor`: a report of the environment, to paste."""

import click

from escala.cli.options import examples, json_option
from escala.cli.output import show


@click.command("doctor", epilog=examples("escala doctor", "escala doctor --json"))
@json_option
def command(as_json: bool) -> None:
    """Show versions, machine, optional parts and settings; nothing secret, ready to paste."""
    from escala.report.doctor import doctor_view, print_doctor

    show(doctor_view(), as_json, print_doctor)
