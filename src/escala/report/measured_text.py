"""What a measured cluster lacks, for people. Knows no bench file."""

from rich.text import Text

from escala.report.answer import ClusterView
from escala.report.layout import folded


def lacking(given: ClusterView, width: int) -> list[Text]:
    """A line for each number that something else stands in for, and what does."""
    return [
        line
        for each in given.unmeasured
        for line in folded(Text(f"not in {given.source}: {each}", style="yellow"), width)
    ]
