"""Write the table of keys of a tool: `scripts/keys NAME`, in an environment that has the tool.

`oracles/NAME_keys.py` has `table()`, which asks the installed tool; its test compares with what is in the
project.
"""

import importlib
import sys
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parents[2] / "src/escala/foreign/data/keys"
ELSEWHERE = {"modules": FOLDER.parent / "modules.json"}


def written(table: msgspec.Struct) -> bytes:
    """The table as it stands in the project: sorted, what is default left out."""
    content = msgspec.json.encode(table, order="sorted")
    return msgspec.json.format(content, indent=1) + b"\n"


def main() -> None:
    for name in sys.argv[1:]:
        table = importlib.import_module(f"oracles.{name.replace('-', '_')}_keys").table()
        ELSEWHERE.get(name, FOLDER / f"{name}.json").write_bytes(written(table))


if __name__ == "__main__":
    main()
