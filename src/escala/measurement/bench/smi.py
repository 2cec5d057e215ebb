"""What nvidia-smi says of one device. Written from its help; never run on a GPU."""

import shutil
import subprocess
from typing import Any, Final

QUERY: Final = ("driver_version", "clocks.sm", "clocks.max.sm", "power.limit")
MHZ: Final = 1e6


def smi(uuid: str) -> str:
    """What nvidia-smi says of one device; nothing where it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = [
        "nvidia-smi",
        f"--id={uuid}",
        f"--query-gpu={','.join(QUERY)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def smi_facts(line: str) -> dict[str, Any]:
    """Driver, clocks and power cap from one line of nvidia-smi; what it does not say is left out."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(QUERY):
        return {}
    clock, most, cap = (float(cell) if cell.replace(".", "", 1).isdigit() else None for cell in cells[1:])
    found = {"clock_hz": clock and clock * MHZ, "most_clock_hz": most and most * MHZ, "power_cap_w": cap}
    return {"driver": cells[0], **found}
