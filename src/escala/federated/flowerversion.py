"""Which Flower escala works with. Imports nothing of it, so it can tell before anything fails."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from escala.errors import MissingExtra

MINOR: Final = "1.42"
INSTALL: Final = "pip install 'escala[federated]'"
INSTALL_MINOR: Final = f"pip install 'flwr=={MINOR}.*'"


def require_flower() -> None:
    """Flower has to be there, in the minor version that escala was written for."""
    refuse_other_versions(installed())


def refuse_other_versions(found: str | None) -> None:
    """Refuse no Flower, and one of another minor version."""
    if found is None:
        raise MissingExtra(f"federated runs need Flower {MINOR}, which is not installed: {INSTALL}")
    if found.split(".")[:2] != MINOR.split("."):
        raise MissingExtra(f"Flower {found} is installed, escala works with {MINOR}: {INSTALL_MINOR}")


def installed() -> str | None:
    """The version of Flower here."""
    try:
        return version("flwr")
    except PackageNotFoundError:
        return None
