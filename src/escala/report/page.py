"""A page that stands alone: no script, no font and no picture from elsewhere. Knows HTML, no content."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

STYLE: Final = """
body{background:var(--ground);color:var(--ink);font:15px/1.45 system-ui,sans-serif;margin:0 auto;
max-width:920px;padding:24px 20px 60px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 8px}p{margin:4px 0}.quiet{color:var(--quiet)}
dl{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}dl div{border:1px solid var(--line);border-radius:8px;
padding:8px 14px}dt{color:var(--quiet);font-size:13px}dd{font-size:22px;margin:0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{border-bottom:1px solid var(--line);padding:4px 8px;text-align:right;vertical-align:top}
th{color:var(--quiet);font-weight:400;white-space:nowrap}th:first-child,td:first-child{text-align:left}
td small{color:var(--quiet)}svg{display:block;height:auto;margin:12px 0;width:100%}
"""


def page(title: str, style: str, parts: Iterable[str]) -> str:
    """A whole document; `style` gives the colours."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}{STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def section(title: str, body: str, told: str = "") -> str:
    """A heading, what is to be known of it, and its content."""
    return f"<h2>{escape(title)}</h2>\n{paragraph(told) if told else ''}{body}"


def paragraph(text: str) -> str:
    """Quiet text."""
    return f'<p class="quiet">{escape(text)}</p>\n'


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Numbers with their names, side by side."""
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f"<dl>{cells}</dl>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>\n" for row in rows)
    return f'<div class="scroll"><table><tr>{_cells("th", heads)}</tr>\n{body}</table></div>\n'


def _cells(tag: str, texts: Sequence[str]) -> str:
    """Cells; lines after the first are small."""
    return "".join(f"<{tag}>{_lines(*text.split(chr(10)))}</{tag}>" for text in texts)


def _lines(first: str, *rest: str) -> str:
    small = "".join(f"<small>{escape(line)}</small>" for line in rest)
    return f"{escape(first)}{'<br>' if first and small else ''}{small}"
