"""An export for people: what was written, of which step, and how it is loaded."""

from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.report.layout import STRONG, flow, hanging, put, room
from escala.report.numbers import count, short
from escala.units import show_bytes

if TYPE_CHECKING:
    from escala.training.checkpoint import Exported

LOADED: Final = {
    "config.json": 'transformers.AutoModel.from_pretrained("{}")',
    "adapter_config.json": 'peft.PeftModel.from_pretrained(model, "{}")',
    "network.json": 'safetensors.torch.load_file("{}/model.safetensors")',
}
"""What loads a folder, by the description in it."""
WHAT: Final = {"model": "model", "adapter": "adapters", "merged": "model with its adapters added"}


def print_exported(console: Console, given: "Exported") -> None:
    """Everything that `escala export` shows."""
    size = f"{short(given.parameters)} parameters, {show_bytes(given.bytes)}"
    put(console, Text(f"Wrote the {WHAT[given.form]} of step {count(given.step)}: {size}", style=STRONG))
    names = [one_line(name) for name in given.files]
    hanging(console, "Files", flow([f"{one_line(given.folder)}: {names[0]}", *names[1:]], room(console)))
    load = next(call for name, call in LOADED.items() if name in given.files)
    hanging(console, "Load", flow([load.format(one_line(given.folder))], room(console)))
    hanging(console, "Note", flow(given.notes, room(console)))
