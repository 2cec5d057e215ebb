"""An assessment from scenario to document and page. Computes nothing itself."""

from pathlib import Path

from escala.federated.assess import Assessment, assess
from escala.federated.scenario import Scenario
from escala.report.assess_page import assess_page
from escala.wholefile import write_whole


def assessed(scenario: Scenario, html: str | None) -> tuple[Assessment, list[str]]:
    """The document, and the files that were written beside it."""
    document = assess(scenario)
    if html is None:
        return document, []
    write_whole(Path(html), assess_page(document).encode())
    return document, [html]
