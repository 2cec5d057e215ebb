"""What cannot go together is refused with the reason and a way out; what can is let pass."""

from dataclasses import replace

import pytest

from escala.errors import InvalidInput
from escala.federated.ranges import exactly
from escala.federated.refusals import least_updates, reasons_against, refuse
from escala.federated.training import (
    Algorithm,
    Codec,
    Part,
    Privacy,
    Robust,
    Selection,
    Training,
)

PLAIN = Training(rounds=exactly(10), clients_per_round=10)
SECURE = replace(PLAIN, has_secure_aggregation=True, least_clients=7)
CENTRAL = Privacy(place="central", noise_ratio=1.0, clip=1.0, delta=1e-5)
LOCAL = replace(CENTRAL, place="local")
TOP = Codec(kind="top-k", keep_ratio=0.1)
RANDOM = Codec(kind="rand-k", keep_ratio=0.1)


def test_limits_of_robust_rules_by_hand():
    # Krum: n >= 2 f + 3; median and trimmed mean: more than half tell the truth
    assert least_updates(Robust.KRUM, 2) == 7
    assert least_updates(Robust.MEDIAN, 2) == 5
    assert least_updates(Robust.TRIMMED_MEAN, 2) == 5
    assert least_updates(Robust.NORM_BOUND, 2) == 1


@pytest.mark.parametrize(
    ("training", "told"),
    [
        (replace(PLAIN, clients_per_round=21), "choose from 1 to 20"),
        (replace(PLAIN, attackers=2), "mean follows a single attacker"),
        (replace(PLAIN, robust=Robust.KRUM, attackers=2, least_clients=6), "raise least_clients to 7"),
        (replace(PLAIN, robust=Robust.MEDIAN, attackers=2, least_clients=4), "raise least_clients to 5"),
        (replace(PLAIN, robust=Robust.TRIMMED_MEAN), "trims nothing"),
        (replace(PLAIN, robust=Robust.NORM_BOUND), "belong together"),
        (replace(PLAIN, norm_bound=1.0), "belong together"),
        (replace(PLAIN, robust=Robust.MEDIAN, algorithm=Algorithm.SCAFFOLD), "was never defined"),
        (replace(SECURE, robust=Robust.KRUM, attackers=1), "compares single updates"),
        (replace(SECURE, robust=Robust.MEDIAN), "compares single updates"),
        (replace(SECURE, robust=Robust.TRIMMED_MEAN, attackers=1), "compares single updates"),
        (replace(SECURE, codec_up=TOP), "choose rand-k"),
        (replace(SECURE, codec_up=Codec(kind="int8")), "would save nothing"),
        (replace(SECURE, codec_down=TOP), "choose codec_down none"),
        (replace(SECURE, algorithm=Algorithm.SCAFFOLD), "single variates"),
        (replace(SECURE, algorithm=Algorithm.FEDBUFF), "single variates"),
        (replace(SECURE, selection=Selection.UTILITY), "by their losses"),
        (replace(SECURE, least_clients=2), "fewer than 3 updates"),
        (replace(SECURE, merges_late=True), "masked for another"),
        (replace(PLAIN, privacy=CENTRAL, merges_late=True), "once a round"),
        (replace(SECURE, privacy=CENTRAL), "cannot bound them"),
        (replace(PLAIN, privacy=CENTRAL, robust=Robust.MEDIAN), "sized for a mean"),
        (replace(PLAIN, privacy=CENTRAL, robust=Robust.NORM_BOUND, norm_bound=1.0), "take norm-bound away"),
        (replace(PLAIN, privacy=CENTRAL, algorithm=Algorithm.SCAFFOLD), "without noise"),
        (replace(PLAIN, privacy=CENTRAL, algorithm=Algorithm.FEDBUFF), "equal weights"),
        (replace(PLAIN, privacy=LOCAL, codec_up=TOP), "largest noise"),
    ],
)
def test_what_cannot_go_together_is_refused_with_a_way_out(training, told):
    with pytest.raises(InvalidInput, match=told):
        refuse(training, 20)


@pytest.mark.parametrize(
    "training",
    [
        PLAIN,
        SECURE,
        replace(SECURE, codec_up=RANDOM),
        replace(SECURE, algorithm=Algorithm.FEDADAM),
        replace(PLAIN, robust=Robust.KRUM, attackers=2, least_clients=7),
        replace(PLAIN, robust=Robust.NORM_BOUND, norm_bound=1.0, attackers=3),
        replace(PLAIN, privacy=CENTRAL, codec_up=TOP),
        replace(PLAIN, privacy=LOCAL, codec_up=RANDOM),
        replace(PLAIN, algorithm=Algorithm.SCAFFOLD, codec_up=TOP, part=Part.LORA),
    ],
)
def test_what_goes_together_is_let_pass(training):
    assert reasons_against(training, 20) == []


def test_every_reason_is_told_at_once():
    both = replace(SECURE, codec_up=TOP, robust=Robust.MEDIAN)

    assert len(reasons_against(both, 20)) == 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"place": "server"}, "central or local"),
        ({"noise_ratio": 0.0}, "nothing is private"),
        ({"clip": float("inf")}, "nothing is private"),
        ({"delta": 1.0}, "delta is 1"),
    ],
)
def test_noise_that_protects_nothing_is_refused(changed, told):
    with pytest.raises(InvalidInput, match=told):
        replace(CENTRAL, **changed)
