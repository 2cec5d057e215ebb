"""What a federated app has to know, in one JSON file inside it: scenario, task, rounds. Knows no Flower."""

from pathlib import Path
from typing import Final

import msgspec

from escala.errors import InvalidInput
from escala.federated.scenario import Scenario

SCHEMA: Final = "escala/federated-app@1"
FILE: Final = "federated.json"


class AppSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: its id, what is learnt by whom, how many rounds, and the server's folder.

    Either `task` (a task's name, file or function) or `app` (a user's ClientApp) with `first`, a function
    that gives its first weights.
    """

    schema: str = SCHEMA
    run: str
    scenario: Scenario
    rounds: int
    folder: str
    task: str | None = None
    app: str | None = None
    first: str | None = None


def write_settings(path: Path, settings: AppSettings) -> None:
    """Write the file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=1))


def read_settings(path: Path) -> AppSettings:
    """Read the file."""
    try:
        return settings_of(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{path} does not describe a federated app ({error}); make it anew") from None


def settings_of(content: bytes) -> AppSettings:
    """The settings that a file holds."""
    return msgspec.json.decode(content, type=AppSettings)
