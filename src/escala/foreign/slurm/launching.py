"""What the commands of a batch script start: by srun or not, how many processes on a node. Knows no rule."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.shelltext import Command, Script, Word

LAUNCHERS: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
PYTHON: Final = re.compile(r"(?:.*/)?python[\d.]*")
SHORT: Final = {"n": "ntasks", "N": "nodes", "c": "cpus-per-task", "K": "kill-on-bad-exit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One command that starts processes; `launcher` is the name of torchrun there, or empty."""

    command: Command
    srun: dict[str, str]
    is_srun: bool
    launcher: str
    runs_python: bool

    @property
    def place(self) -> Word:
        """The word to point at: the command's first."""
        return self.command.words[0]


def launches(script: Script) -> Iterator[Launch]:
    """Commands that start torchrun or Python, with the options of srun before them."""
    for command in script.commands:
        is_srun = command.name == "srun"
        own, rest = _srun_options(command.words[1:]) if is_srun else ({}, command.words)
        text = " ".join(word.text for word in rest)
        launcher = next((name for name in LAUNCHERS if re.search(rf"(?<![\w/-]){name}(?![\w-])", text)), "")
        runs = bool(rest) and PYTHON.fullmatch(rest[0].text) is not None
        if is_srun or ((launcher or runs) and _starts(rest, launcher)):
            yield Launch(
                command=command,
                srun=own,
                is_srun=is_srun,
                launcher=launcher,
                runs_python=runs and not launcher,
            )


def _starts(words: tuple[Word, ...], launcher: str) -> bool:
    """Whether the launcher is the program, not a word of another command (echo, ssh, a container's)."""
    if not launcher:
        return True
    name = words[0].text.rpartition("/")[2]
    return name == launcher or (
        PYTHON.fullmatch(name) is not None and len(words) > 2 and words[1].text == "-m"
    )


def _srun_options(words: tuple[Word, ...]) -> tuple[dict[str, str], tuple[Word, ...]]:
    """Options of srun by long name, and the command that it is given; a value may follow as its own word."""
    found: dict[str, str] = {}
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        text = words[index].text
        index += 1
        name, sign, value = text.lstrip("-").partition("=")
        if not text.startswith("--") and name:
            letter, rest = name[0], name[1:]
            name, value, sign = SHORT.get(letter, letter), value or rest, sign or rest
        if not sign and index < len(words) and _is_value(name, words[index].text):
            value = words[index].text
            index += 1
        found[name] = value
    return found, words[index:]


def _is_value(name: str, text: str) -> bool:
    """Whether the word after an option without = is its value: a number, or what such options take."""
    return text.isdigit() or name in ("nodelist", "w", "output", "o", "error", "e", "p", "J", "mpi")
