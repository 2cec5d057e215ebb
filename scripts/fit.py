"""Fits the free numbers to the published rows: catalog/data/fitted.toml and calibration/data/residuals.csv.

The same data and code give the same files, but for the date. `--check` only says whether the files belong to
the data.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from escala.calibration import Reading, read, read_rows
from escala.calibration.fitting import Fit, calibrated, fit, interval_ratios
from escala.calibration.free import Free, free_parameters
from escala.catalog.engines import assumption_settings
from escala.catalog.fitted import factor_of
from escala.wholefile import write_whole

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "src/escala/calibration/data/rows.csv.gz"
FREE = ROOT / "src/escala/calibration/data/free.toml"
FITTED = ROOT / "src/escala/catalog/data/fitted.toml"
RESIDUALS = ROOT / "src/escala/calibration/data/residuals.csv"
HEAD = """# Written by scripts/fit; do not edit. Each factor multiplies the value of its record; sd is that of
# the factor's logarithm, share what the data decide of it (the rest is the prior).
schema = "escala/fitted@1"
source = "scripts/fit on the published rows of escala, calibration/data"
"""


def digest() -> str:
    """What the fit depends on beside code: the packed rows and the list of free numbers."""
    return hashlib.sha256(ROWS.read_bytes() + FREE.read_bytes()).hexdigest()[:16]


def main(arguments: Sequence[str]) -> int:
    """Runs the fit, or checks the files."""
    if "--check" in arguments:
        fresh = f'digest = "{digest()}"' in FITTED.read_text()
        print(
            "fitted.toml belongs to the data"
            if fresh
            else "fitted.toml is older than the data: run scripts/fit"
        )
        return 0 if fresh else 1
    readings = [each for each in map(read, read_rows().rows) if isinstance(each, Reading)]
    result = fit(readings, free_parameters(), _progress())
    write_whole(FITTED, fitted_text(result).encode())
    write_whole(RESIDUALS, residuals_text(result).encode())
    print(f"{FITTED}\n{RESIDUALS}")
    return 0


def _progress() -> Callable[[str, float], None]:
    """Shows how far the fit is: one line that renews itself, or one line a round where nobody watches."""
    started, is_watched = time.monotonic(), sys.stderr.isatty()

    def show(label: str, share: float) -> None:
        if is_watched or share == 1.0:
            line = f"{label}: {share:4.0%}, {time.monotonic() - started:.0f} s"
            print(line, end="\r" if is_watched else "\n", file=sys.stderr, flush=True)

    return show


def fitted_text(result: Fit) -> str:
    """The data file: what was fitted, to what, how well."""
    sample, posterior = result.sample, result.posterior
    errors, left_out = np.abs(np.expm1(result.inside)), np.abs(np.expm1(result.outside))
    engines = calibrated(sample, [r.problem.engine.name for r in sample.readings])
    pairs = calibrated(sample, [pair_of(r) for r in sample.readings])
    chips = calibrated(sample, [r.problem.accelerator.name for r in sample.readings])
    sources = len({r.row.source for r in sample.readings})
    lines = [
        HEAD,
        "[run]",
        f'title = "Fit of step times to {len(sample):,} published rows of {sources} sources"',
        f'date = "{time.strftime("%Y-%m-%d")}"',
        f'digest = "{digest()}"',
        f"rows = {len(sample)}",
        f"groups = {len(set(sample.groups.tolist()))}",
        f"numbers = {len(result.free)}",
        f"effective_numbers = {posterior.share.sum():.1f}",
        f"mean_error = {errors.mean():.4f}",
        f"median_error = {np.median(errors):.4f}",
        f"left_out_mean_error = {left_out.mean():.4f}",
        f"left_out_median_error = {np.median(left_out):.4f}",
        f"engines = {list(engines)}".replace("'", '"'),
        f"accelerators = {list(chips)}".replace("'", '"'),
        f"pairs = {list(pairs)}".replace("'", '"'),
    ]
    moved = zip(result.free, posterior.values, posterior.sd, posterior.share, strict=True)
    for free, value, sd, share in moved:
        lines += _parameter(free, float(np.exp(value)), float(sd), float(share))
    for field, ratio in interval_ratios(result).items():
        free = Free(name=f"assumption.all.{field}", of="assumption", names=(), field=field, sd=0.0)
        lines += _parameter(free, ratio / _record(field), 0.0, 1.0)
    return "\n".join(lines) + "\n"


def pair_of(reading: Reading) -> str:
    """The engine and the architecture that a row ran on."""
    return f"{reading.problem.engine.name} on {reading.problem.accelerator.architecture}"


def _record(field: str) -> float:
    """The value of an assumption before the factor of an earlier fit."""
    return float(assumption_settings()[field].value) / (factor_of("assumption", ("",), field) or 1.0)


def _parameter(free: Free, factor: float, sd: float, share: float) -> list[str]:
    return [
        "\n[[parameter]]",
        f'name = "{free.name}"',
        f'of = "{free.of}"',
        f"names = {list(free.names)}".replace("'", '"'),
        f'field = "{free.field}"',
        f"factor = {factor:.6f}",
        f"sd = {sd:.4f}",
        f"share = {share:.3f}",
    ]


def residuals_text(result: Fit) -> str:
    """Log errors of every row, in the fit and with its source left out."""
    rows = zip(result.sample.readings, result.inside, result.outside, strict=True)
    lines = [f"{reading.row.id},{inside:.4f},{outside:.4f}" for reading, inside, outside in rows]
    return "\n".join(["id,log_error,left_out_log_error", *lines]) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
