"""Options that several verbs share, and types that refuse wrong values in one clear line."""

import math
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from escala.cli.verb import Switch

NUMBER: Final = re.compile(r"[-+]?[\d.,_]+(e[-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)
Command = TypeVar("Command", bound=Callable[..., Any])
PIXELS: Final = re.compile(r"(\d{1,6})(?:[xX×](\d{1,6}))?", re.ASCII)
MOST_DEVICES: Final = 1_000_000
MOST_PIXELS: Final = 65_536
SHORT: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
WHOLE: Final = re.compile(r"[+-]?\d{1,3}([,_]?\d{3})*|[+-]?\d+", re.ASCII)


class Whole(click.ParamType):  # type: ignore[type-arg] # only generic from click 8.4 on
    """A whole number inside a range; 1,000 and 1_000 are 1000."""

    name = "N"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a refusal that says the range."""
        text = str(value).strip()
        number = (
            int(text.replace(",", "").replace("_", "")) if WHOLE.fullmatch(text) and len(text) < 30 else None
        )
        if number is None or not self.least <= number <= self.most:
            self.fail(f"'{shown(value)}' is no whole number from {self.least:,} to {self.most:,}", param, ctx)
        return number


class Number(click.ParamType):  # type: ignore[type-arg] # only generic from click 8.4 on
    """A finite number inside a range; with `suffixes`, 15B is 15e9 and 2T is 2e12."""

    name = "X"

    def __init__(self, least: float, most: float, *, suffixes: bool = False) -> None:
        self.least, self.most, self.suffixes = least, most, suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a refusal that says the range."""
        number = self._number(str(value).strip().replace(",", "").lower())
        if not self.least <= number <= self.most:
            hint = "; write for example 15e9 or 15B" if self.suffixes else ""
            self.fail(f"'{shown(value)}' is no number from {self.least:g} to {self.most:g}{hint}", param, ctx)
        return number

    def _number(self, text: str) -> float:
        suffix = text[-1:] if self.suffixes and text[-1:].isalpha() else ""
        try:
            return float(text.removesuffix(suffix)) * SHORT.get(suffix, math.nan)
        except ValueError:
            return math.nan


class Word(click.ParamType):  # type: ignore[type-arg] # only generic from click 8.4 on
    """A name of a short list; case does not count."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name in small letters."""
        return str(value).strip().lower()


class Pixels(click.ParamType):  # type: ignore[type-arg] # only generic from click 8.4 on
    """Height and width of an image: 896x1344, or 448 for a square."""

    name = "HxW"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The two numbers, or a refusal that says how they are written."""
        if isinstance(value, tuple):
            return value
        found = PIXELS.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"'{shown(value)}' is no size of an image; write for example 896x1344", param, ctx)
        height, width = int(found[1]), int(found[2] or found[1])
        if not 1 <= min(height, width) <= max(height, width) <= MOST_PIXELS:
            self.fail(f"'{shown(value)}' is out of range; each side is 1 to {MOST_PIXELS:,}", param, ctx)
        return height, width


class Rate(click.ParamType):  # type: ignore[type-arg] # only generic from click 8.4 on
    """A link of the catalog or a rate with its unit; a bare number would be bytes in a second."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, or a refusal of a number without unit."""
        text = str(value).strip()
        if NUMBER.fullmatch(text):
            self.fail(f"'{shown(text)}' has no unit; write for example '400 Gb/s'", param, ctx)
        return text


def shown(value: object) -> str:
    """A given value as a short line for a message."""
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:40]}..."


def examples(*lines: str) -> str:
    """The end of a verb's help; click keeps the lines as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {each}" for each in lines)


def json_option(command: Command) -> Command:
    """--json."""
    return switch("--json/--no-json", "as_json", help="Print one JSON document.")(command)


def calibration_option(command: Command) -> Command:
    """--calibration."""
    return click.option(
        "--calibration", metavar="FILE", help="Correct numbers by own runs: what escala calibrate -o wrote."
    )(command)


def switch(*names: str, help: str) -> Callable[[Command], Command]:
    """An option that is on or off."""
    return click.option(*names, cls=Switch, is_flag=True, default=False, help=help)


def stacked(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several options as one decorator, shown in this order."""

    def add(command: Command) -> Command:
        for each in reversed(options):
            command = each(command)
        return command

    return add


devices = Whole(1, MOST_DEVICES)
where_options = stacked(
    click.option("--gpus", type=devices, help="Number of devices; any, also a prime."),
    click.option("--gpu", metavar="NAME", help="Device of the catalog, such as h100-sxm."),
    click.option(
        "--gpus-per-node", type=devices, help="Devices in a node, where it is not the usual number."
    ),
    click.option(
        "--network",
        type=Rate(),
        metavar="RATE",
        help="Network per device: '400 Gb/s' or a link of the catalog.",
    ),
    click.option(
        "--cluster", metavar="NAME|FILE", help="Cluster of the catalog, a cluster.toml or a bench.json."
    ),
    click.option("--price", type=Number(0.0, 1e5), metavar="USD", help="Price of one device-hour."),
    click.option("--country", metavar="CODE", help="Where it stands, for the carbon of the grid."),
    click.option("--pue", type=Number(1.0, 5.0), help="Energy of the site over that of its computers."),
)
shape_option = click.option("--shape", metavar="SIZES", help="One sample of a module of your own: 3,224,224.")
what_options = stacked(
    click.option("--seq", type=Whole(1, 100_000_000), help="Sequence length in tokens."),
    shape_option,
    click.option(
        "--lengths", metavar="FILE|P50=N,..", help="Lengths of samples: a file, or p50=400,p90=1500,max=4096."
    ),
    click.option(
        "--batching",
        type=Word(),
        metavar="NAME",
        help="What is made of them: padded, grouped (by length), packed or masked (packed, by document).",
    ),
    click.option("--global-batch", type=Whole(1, 1_000_000_000), help="Sequences (or images) in one step."),
    click.option(
        "--tokens", type=Number(1.0, 1e18, suffixes=True), help="Tokens (or images) of the whole run."
    ),
    click.option(
        "--precision", type=Word(), default="bf16", metavar="NAME", show_default=True, help="Number format."
    ),
    click.option(
        "--method",
        type=Word(),
        default="pretrain",
        metavar="NAME",
        show_default=True,
        help="pretrain, full, lora, qlora or adapter.",
    ),
    click.option(
        "--lora-rank", type=Whole(1, 65536), help="Rank of the adapters, for --method lora or qlora."
    ),
    click.option(
        "--adapter-width", type=Whole(1, 65536), help="Width of the bottlenecks, for --method adapter."
    ),
    click.option(
        "--freeze",
        multiple=True,
        metavar="PART,..",
        help="Parts that are not trained: vision, projector, embedding, head, layers:0-15.",
    ),
    click.option(
        "--expert-loads",
        metavar="X%|FILE",
        help="How unevenly experts are loaded: deviation over the mean, or a file with tokens of each.",
    ),
    click.option("--images", type=Whole(0, 10_000), help="Images in one sample, for networks with a tower."),
    click.option("--image", type=Pixels(), metavar="HxW", help="Height and width of an image in pixels."),
    click.option(
        "--predict",
        type=Whole(0, 16),
        default=0,
        metavar="N",
        help="Train N layers that predict further tokens (MTP); no network has them by itself.",
    ),
    click.option(
        "--optimizer",
        type=Word(),
        default="adamw",
        metavar="NAME",
        show_default=True,
        help="adamw, adamw-bf16, adamw-8bit, adamw-8bit-paged, sgd, lion, adafactor, muon or muon-gathered.",
    ),
    click.option(
        "--engine", default="pytorch", metavar="NAME", show_default=True, help="Software that runs it."
    ),
)
reason_options = stacked(
    click.option(
        "--batch",
        metavar="LOW..HIGH",
        help="Global batches: take the best to the target.",
    ),
    click.option(
        "--critical-batch",
        metavar="N|RUN",
        help="Critical batch in samples, or a run with --noise.",
    ),
    click.option(
        "--keep",
        type=Number(0.01, 1.0),
        metavar="SHARE",
        help="Efficiency to keep; says which batch does.",
    ),
    click.option(
        "--loader-samples-per-s",
        metavar="X|BENCH",
        help="What one node's loader feeds.",
    ),
)
