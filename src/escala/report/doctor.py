"""The environment, to paste into a report: versions, machine, extras, settings. Reads no file."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from escala import __version__
from escala.report.layout import Chunk, flow, hanging, put, room
from escala.report.numbers import gib
from escala.report.saved import NAME, cache_folder

DOCTOR_SCHEMA: Final = "escala/doctor@1"
CORE: Final = ("click", "msgspec", "numpy", "pyyaml", "rich")
EXTRAS: Final = {
    "data": ("pillow", "pyarrow", "tokenizers"),
    "hf": ("huggingface-hub", "transformers"),
    "torch": ("torch",),
    "watch": ("nvidia-ml-py", "prometheus-client", "psutil"),
}
# Settings that change what escala or its libraries do; no other variable is shown.
SETTINGS: Final = (
    "ESCALA_CACHE_DIR",
    "ESCALA_CONFIG",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "COLUMNS",
    "HF_HUB_OFFLINE",
    "HF_HOME",
)
SMI: Final = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraView:
    """An optional part: its packages with versions (None where missing) and the command that installs it."""

    name: str
    is_installed: bool
    packages: dict[str, str | None]
    install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionView:
    """An option that is not at its default: its value, the file or variable that sets it, what is wrong."""

    verb: str
    option: str
    value: str | list[str]
    origin: str
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Where settings were looked for, which options they set, and what is wrong with the files."""

    files: dict[str, str] = field(default_factory=dict)
    options: tuple[OptionView, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorView:
    """The document of `escala doctor --json`."""

    schema: str
    escala: str
    location: str
    python: str
    platform: str
    machine: str
    cores: int | None
    memory_bytes: float | None
    devices: tuple[str, ...]
    packages: dict[str, str | None]
    extras: tuple[ExtraView, ...]
    settings: dict[str, str]
    config: Config
    cache: str
    has_last_run: bool


def doctor_view(config: Config) -> DoctorView:
    """What this machine and this installation are, with the settings that were read."""
    return DoctorView(
        schema=DOCTOR_SCHEMA,
        escala=__version__,
        location=str(Path(__file__).parents[1]),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        machine=platform.machine(),
        cores=os.cpu_count(),
        memory_bytes=_memory_bytes(),
        devices=_devices(),
        packages={name: _version(name) for name in CORE},
        extras=tuple(_extra(name) for name in EXTRAS),
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
        config=config,
        cache=str(cache_folder()),
        has_last_run=os.path.isfile(cache_folder() / NAME),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extra(name: str) -> ExtraView:
    packages = {package: _version(package) for package in EXTRAS[name]}
    return ExtraView(
        name=name,
        is_installed=None not in packages.values(),
        packages=packages,
        install=f"pip install 'escala[{name}]'",
    )


def _memory_bytes() -> float | None:
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _devices() -> tuple[str, ...]:
    """NVIDIA devices of this machine, as their driver names them; none where it does not answer."""
    if shutil.which(SMI[0]) is None:
        return ()
    try:
        answer = subprocess.run(SMI, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())


def print_doctor(console: Console, given: DoctorView) -> None:
    """The report for people, without colours, so that it can be pasted."""
    memory = "memory unknown" if given.memory_bytes is None else f"{gib(given.memory_bytes)} GiB memory"
    lines: dict[str, list[Chunk]] = {
        "escala": [given.escala, given.python, given.location],
        "system": [given.platform, f"{given.cores or '?'} cores", memory],
        "GPUs": list(given.devices) or ["none found"],
        "needs": [f"{name} {found or 'missing'}" for name, found in given.packages.items()],
        "cache": [given.cache, "has a last run" if given.has_last_run else "no run yet"],
        "set": [f"{name}={value}" for name, value in given.settings.items()] or ["no variable"],
        "files": [f"{path}: {state}" for path, state in given.config.files.items()],
        "option": [_option(each) for each in given.config.options],
        "fault": [Text(each, style="red") for each in given.config.faults],
    }
    for label, chunks in lines.items():
        hanging(console, label, flow(chunks, room(console)), style="")
    for each in given.extras:
        found: list[Chunk] = [f"{name} {version or 'missing'}" for name, version in each.packages.items()]
        found += [] if each.is_installed else [each.install]
        hanging(console, each.name, flow(found, room(console)), style="")
    put(console)


def _option(each: OptionView) -> Text:
    """The option with its value and origin, and what is wrong with it."""
    value = " ".join(each.value) if isinstance(each.value, list) else each.value
    text = Text(f"{each.verb} {each.option} {value} ({each.origin})")
    return text.append(f": {each.fault}" if each.fault else "", style="red")
