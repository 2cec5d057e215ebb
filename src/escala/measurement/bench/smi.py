"""What nvidia-smi says of one device. Written from its help; never run on a GPU."""

import re
import shutil
import subprocess
from typing import Any, Final

ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
QUERY: Final = (
    *("driver_version", "clocks.sm", "clocks.max.sm", "power.limit"),
    *("pcie.link.gen.max", "pcie.link.width.max"),
)
MHZ: Final = 1e6


def smi(uuid: str) -> str:
    """What nvidia-smi says of one device; nothing where it does not answer."""
    return _asked(f"--id={uuid}", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")


def topology() -> tuple[str, ...]:
    """How devices, network cards and processors are joined, as nvidia-smi draws it; nothing without it."""
    lines = ANSI.sub("", _asked("topo", "-m")).splitlines()
    return tuple(" ".join(line.split()) for line in lines if line.strip())


def smi_facts(line: str) -> dict[str, Any]:
    """Driver, clocks and power cap from one line of nvidia-smi; what it does not say is left out."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(QUERY):
        return {}
    clock, most, cap, generation, lanes = (_number(cell) for cell in cells[1:])
    found = {"clock_hz": clock and clock * MHZ, "most_clock_hz": most and most * MHZ, "power_cap_w": cap}
    pcie = f"gen {generation:.0f}, {lanes:.0f} lanes" if generation and lanes else None
    return {"driver": cells[0], "pcie": pcie, **found}


def _number(cell: str) -> float | None:
    return float(cell) if cell.replace(".", "", 1).isdigit() else None


def _asked(*options: str) -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
