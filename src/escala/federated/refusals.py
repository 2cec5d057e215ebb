"""What cannot go together in one way of training, and what a robust rule needs: each with reason and way out.

The only place that knows. It judges a Training for a number of clients; it trains nothing.
"""

from collections.abc import Callable
from typing import Final

from escala.errors import InvalidInput
from escala.federated.training import Algorithm, Robust, Selection, Training

ROBUST_LEAST: Final = {Robust.KRUM: (2, 3), Robust.MEDIAN: (2, 1), Robust.TRIMMED_MEAN: (2, 1)}
"""Updates needed against f attackers as factor * f + rest: Blanchard et al. 2017 (Krum, 2f + 2 < n);
Yin et al. 2018 (median and trimmed mean, f < n / 2)."""


def refuse(training: Training, clients: int) -> None:
    """Raise with every reason why this cannot be run; say nothing if it can."""
    reasons = reasons_against(training, clients)
    if reasons:
        raise InvalidInput("; ".join(reasons))


def reasons_against(training: Training, clients: int) -> list[str]:
    """Why this cannot be run, and what to do instead; empty if it can."""
    found = [why for rule in _RULES if (why := rule(training, clients))]
    return list(dict.fromkeys(found))


def least_updates(robust: Robust, attackers: int) -> int:
    """Updates that a rule needs to hold against some that lie: 2 f + 3 for Krum, 2 f + 1 for the others."""
    factor, rest = ROBUST_LEAST.get(robust, (0, 1))
    return factor * attackers + rest


def _cohort(training: Training, clients: int) -> str | None:
    if 1 <= training.clients_per_round <= clients:
        return None
    return f"{training.clients_per_round} clients a round out of {clients}: choose from 1 to {clients}"


def _robust_numbers(training: Training, clients: int) -> str | None:
    if training.attackers < 0:
        return f"attackers is {training.attackers}; give how many of the updates of a round may lie, or 0"
    least = least_updates(training.robust, training.attackers)
    if training.robust not in ROBUST_LEAST or training.least_clients >= least:
        return None
    return (
        f"{training.robust.value} against {training.attackers} attackers needs {least} updates, but a round"
        f" may end with least_clients = {training.least_clients}; raise least_clients to {least}, or expect"
        " fewer attackers"
    )


def _robust_means_something(training: Training, clients: int) -> str | None:
    if training.attackers and training.robust is Robust.MEAN:
        return "mean follows a single attacker; choose median, trimmed-mean, krum or norm-bound"
    if training.robust is Robust.TRIMMED_MEAN and not training.attackers:
        return "trimmed-mean with attackers = 0 trims nothing; say how many attackers to trim, or choose mean"
    if (training.robust is Robust.NORM_BOUND) != (training.norm_bound is not None):
        return "norm-bound and norm_bound belong together: the rule needs the longest update that may pass"
    if training.norm_bound is not None and not training.norm_bound > 0:
        return f"norm_bound is {training.norm_bound}; give the longest update that may pass, above 0"
    return None


def _robust_algorithm(training: Training, clients: int) -> str | None:
    if training.robust is not Robust.MEAN and training.algorithm in (Algorithm.SCAFFOLD, Algorithm.FEDBUFF):
        return (
            f"{training.robust.value} with {training.algorithm.value} was never defined: control variates and"
            " stale updates would pass beside the rule; choose fedavg, fedprox, fedadam or fedyogi"
        )
    return None


def _secure_robust(training: Training, clients: int) -> str | None:
    if training.has_secure_aggregation and training.robust is not Robust.MEAN:
        return (
            f"secure aggregation shows the server the sum only, {training.robust.value} compares single"
            " updates; choose mean, or give up secure aggregation"
        )
    return None


def _secure_codec(training: Training, clients: int) -> str | None:
    kind = training.codec_up.kind
    if not training.has_secure_aggregation or kind in ("none", "rand-k"):
        return None
    if kind == "top-k":
        return (
            "secure aggregation adds masked numbers place by place, but top-k sends other places from each"
            " client; choose rand-k, whose places all clients of a round share"
        )
    return (
        f"secure aggregation makes integers of its own kind, so codec_up {kind} would save nothing;"
        " choose none or rand-k"
    )


def _secure_algorithm(training: Training, clients: int) -> str | None:
    if not training.has_secure_aggregation:
        return None
    if training.algorithm in (Algorithm.SCAFFOLD, Algorithm.FEDBUFF):
        return (
            f"secure aggregation sums one cohort at a time, {training.algorithm.value} needs single variates"
            " or updates that come when they come; choose fedavg, fedprox, fedadam or fedyogi"
        )
    if training.codec_down.kind != "none":
        return "secure aggregation by Flower sends weights down as they are; choose codec_down none"
    return None


def _secure_selection(training: Training, clients: int) -> str | None:
    if training.has_secure_aggregation and training.selection is Selection.UTILITY:
        return (
            "secure aggregation hides what single clients report, utility selection chooses by their losses;"
            " choose uniform, poisson or low-carbon"
        )
    return None


def _secure_cohort(training: Training, clients: int) -> str | None:
    if training.has_secure_aggregation and training.least_clients < 3:
        return (
            "secure aggregation of fewer than 3 updates lets each client compute the others' from the sum;"
            " raise least_clients to 3 or more"
        )
    return None


def _late(training: Training, clients: int) -> str | None:
    if not training.merges_late:
        return None
    if training.privacy is not None:
        return (
            "privacy counts a client once a round, late updates come beside fresh ones; take merges_late away"
        )
    if training.has_secure_aggregation:
        return (
            "secure aggregation sums one round, late updates were masked for another; take merges_late away"
        )
    return None


def _secure_privacy(training: Training, clients: int) -> str | None:
    if training.has_secure_aggregation and training.privacy is not None:
        return (
            "secure aggregation hides single updates, so the server cannot bound them, and noise at the"
            " client was never tried with Flower's workflow; choose one of the two: central privacy trusts"
            " the server, local privacy does not need to hide"
        )
    return None


def _private_robust(training: Training, clients: int) -> str | None:
    if training.privacy is None or training.robust is Robust.MEAN:
        return None
    if training.robust is Robust.NORM_BOUND:
        return "privacy bounds every update by its clip already; take norm-bound away"
    return (
        f"noise is sized for a mean, {training.robust.value} moves by more when one client changes; choose"
        " mean, or robustness without privacy"
    )


def _private_algorithm(training: Training, clients: int) -> str | None:
    if training.privacy is None:
        return None
    if training.algorithm is Algorithm.SCAFFOLD:
        return (
            "scaffold sends control variates beside updates, without noise; choose fedavg, fedprox or fedadam"
        )
    if training.algorithm is Algorithm.FEDBUFF:
        return (
            "fedbuff weighs updates by how late they come, and noise is sized for equal weights; choose"
            " fedavg, fedprox, fedadam or fedyogi"
        )
    return None


def _private_codec(training: Training, clients: int) -> str | None:
    if training.privacy is None or training.privacy.place != "local" or training.codec_up.kind != "top-k":
        return None
    return (
        "local noise is added to every number, so top-k would send the largest noise, not the largest"
        " changes; choose none, fp16, int8 or rand-k, or central privacy"
    )


_RULES: Final[tuple[Callable[[Training, int], str | None], ...]] = (
    _cohort,
    _robust_means_something,
    _robust_numbers,
    _robust_algorithm,
    _secure_robust,
    _secure_codec,
    _secure_algorithm,
    _secure_selection,
    _secure_cohort,
    _secure_privacy,
    _late,
    _private_robust,
    _private_algorithm,
    _private_codec,
)
