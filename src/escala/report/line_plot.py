"""A few lines over an axis of counts (steps, devices) or amounts, as SVG for a page. Knows points, no run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10
from typing import Final

WIDE, HIGH = 860, 260
LEFT, TOP, RIGHT, BOTTOM = 64, 18, 12, 34
TICKS: Final = 5
STYLE: Final = (
    ":root{--ground:#fff;--ink:#1c1f23;--quiet:#626a73;--line:#dfe3e8;--a:#0b62a8;--b:#c98a00}"
    "@media(prefers-color-scheme:dark){"
    ":root{--ground:#14171b;--ink:#e6e8ea;--quiet:#98a1ab;--line:#30363d;--a:#5aa9e6;--b:#f2c14e}}"
    ".lines text{fill:var(--quiet);font:13px system-ui,sans-serif}.lines .g{stroke:var(--line)}"
    ".lines .l0{stroke:var(--a);fill:none;stroke-width:1.6}"
    ".lines .l1{stroke:var(--b);fill:none;stroke-width:1.6}"
    ".lines .l2{stroke:var(--a);fill:none;stroke-width:1.6;stroke-dasharray:6 4}"
    ".lines .l3,.lines .l4{stroke:var(--quiet);fill:none;stroke-dasharray:2 3}"
    ".lines .m0,.lines .m2{fill:var(--a)}.lines .m1{fill:var(--b)}.lines .m3,.lines .m4{fill:var(--quiet)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A name, and points (count, value); a single point is drawn as a mark."""

    name: str
    points: tuple[tuple[float, float], ...]


def line_plot(title: str, lines: Sequence[Line], unit: str = "step") -> str:
    """The plot, or nothing where no point is finite; `unit` is what the axis counts or measures."""
    kept = [Line(name=each.name, points=tuple(p for p in each.points if isfinite(p[1]))) for each in lines]
    every = [point for each in kept for point in each.points]
    if not every:
        return ""
    frame = _Frame.of(every)
    parts = [
        *frame.grid(unit),
        *(part for place, each in enumerate(kept) for part in _drawn(place, each, frame)),
    ]
    return (
        f'<svg class="lines" viewBox="0 0 {WIDE} {HIGH}" role="img"><title>{escape(title)}</title>'
        f"{''.join(parts)}{''.join(_legend(kept))}</svg>\n"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    last: float
    is_counted: bool
    low: float
    high: float
    step: float

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> "_Frame":
        values = [value for _, value in points]
        places = [at for at, _ in points]
        is_counted = all(at == round(at) for at in places)
        low, high = min(values), max(values)
        spread = (high - low) or abs(high) or 1.0
        step = _round(spread / TICKS)
        bottom = floor(low / step) * step
        return cls(
            last=max(max(places), 1.0) if is_counted else max(places),
            is_counted=is_counted,
            low=bottom,
            high=max(ceil(high / step) * step, bottom + step),
            step=step,
        )

    def x(self, at: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * at / self.last

    def y(self, value: float) -> float:
        return TOP + (HIGH - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)

    def grid(self, unit: str) -> Iterator[str]:
        for tick in range(round((self.high - self.low) / self.step) + 1):
            value = self.low + tick * self.step
            y = self.y(value)
            yield f'<path class="g" d="M{LEFT} {y:.1f}H{WIDE - RIGHT}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        for share in (0.0, 0.5, 1.0):
            at = round(self.last * share) if self.is_counted else self.last * share
            told = f"{at:,}" if self.is_counted else f"{at:.3g}"
            anchor = "end" if share == 1.0 else "middle"
            yield f'<text x="{self.x(at):.1f}" y="{HIGH - 10}" text-anchor="{anchor}">{unit} {told}</text>'


def _round(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return power * next(each for each in (1.0, 2.0, 5.0, 10.0) if each * power >= step * (1 - 1e-9))


def _drawn(place: int, line: Line, frame: _Frame) -> Iterator[str]:
    spots = [(frame.x(at), frame.y(value)) for at, value in line.points]
    if len(spots) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
        yield f'<path class="l{place}" d="M{path}"/>'
    elif spots:
        yield f'<circle class="m{place}" cx="{spots[0][0]:.1f}" cy="{spots[0][1]:.1f}" r="4"/>'


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    x = LEFT + 12.0
    for place, each in enumerate(each for each in lines if each.points):
        yield f'<circle class="m{place}" cx="{x}" cy="{TOP - 6}" r="4"/>'
        yield f'<text x="{x + 10}" y="{TOP - 2}">{escape(each.name)}</text>'
        x += 40.0 + 7.5 * len(each.name)
