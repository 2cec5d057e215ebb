"""A line through points by relative error. Knows neither what the points are nor where they come from."""

from collections.abc import Sequence

import numpy as np


def line(sizes: Sequence[float], times_s: Sequence[float]) -> tuple[float, float]:
    """Alpha and beta that minimise the sum of squared relative errors; neither is below zero.

    Relative errors, since times span six decades: small sizes decide alpha, large ones beta.
    Source: Hockney 1994 for the line; least squares with weights 1 / time².
    """
    seconds = np.asarray(times_s, np.float64)
    ones, slopes = 1.0 / seconds, np.asarray(sizes, np.float64) / seconds
    aa, ab, bb = float(ones @ ones), float(ones @ slopes), float(slopes @ slopes)
    a, b = float(ones.sum()), float(slopes.sum())
    determinant = aa * bb - ab * ab
    if determinant <= 1e-12 * aa * bb:
        return 0.0, b / bb
    alpha, beta = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if alpha < 0.0:
        return 0.0, b / bb
    return (a / aa, 0.0) if beta < 0.0 else (alpha, beta)
