"""What a scheduler's file runs on every node: the line of another target, or escala's own script."""

import shlex
from typing import Final

import yaml

from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.torchrun import writing

OWN: Final = "bash launch.sh"
PORT: Final = 29500


def line_of(order: Order) -> str:
    """The line that starts an order on a node; it may read MASTER_ADDR, MASTER_PORT and NODE_RANK."""
    return order.launch or OWN


def own_files(target: Target, order: Order) -> list[OutFile]:
    """The script that trains by escala, under the scheduler's header; none with another target's line."""
    if order.launch:
        return []
    return [
        OutFile(
            name=each.name,
            text=each.text.replace(header(writing.TARGET, order), header(target, order)),
            is_executable=each.is_executable,
        )
        for each in writing.write(order)
    ]


def also(order: Order) -> list[str]:
    """What escala's own engine cannot run, where no other target's line is given."""
    return [] if order.launch else writing.TARGET.also(order)


def name_of(order: Order) -> str:
    """The name of a job: letters, digits and dashes."""
    return f"escala-{order.digest[:12]}"


def quoted(text: str) -> str:
    """A text as one word of a shell."""
    return shlex.quote(text)


class _Script(str):
    """A text of several lines that YAML writes as a block."""


class _Dumper(yaml.SafeDumper):
    """As safe_dump, with scripts as blocks."""


def _block(dumper: yaml.SafeDumper, text: _Script) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(_Script, _block)


def script(*lines: str) -> str:
    """Lines as one text that YAML writes as a block."""
    return _Script("".join(f"{line}\n" for line in lines))


def yaml_of(head: str, content: object) -> str:
    """A file of YAML under its header, keys in the order given."""
    return head + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
