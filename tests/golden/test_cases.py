"""Does it fit? The verdict for runs that people reported, against what happened."""

from typing import Any

import pytest

from escala.catalog.networks import network
from escala.model.estimate import Estimate, estimate
from escala.model.memory import Verdict
from escala.model.plan import Plans
from escala.model.rejects import Reject

GIB = 2.0**30
LEAST_RIGHT = 0.85
WORDS = {Verdict.FITS: "fits", Verdict.RISKY: "risky", Verdict.DOES_NOT_FIT: "does not fit"}
# a risky plan is announced as such, so that neither outcome contradicts it
RIGHT = {"fits": ("fits", "risky"), "does not fit": ("does not fit", "risky")}


@pytest.fixture
def judged(asked, plan_of, llama):
    def one(case: dict[str, Any]) -> Estimate:
        shape = llama(**case["shape"]) if "shape" in case else network(case["network"])
        plan = plan_of(case["plan"])
        given = {
            key: case[key]
            for key in ("engine", "device", "sequence_tokens", "method", "lora_rank", "state_bytes")
            if key in case
        }
        return estimate(asked(shape, plan, **given), Plans.of(plan))

    return one


def test_at_least_85_percent_of_the_verdicts_are_right(table, judged):
    cases = table("cases")["case"]
    right = []

    print("\nreported, predicted, need in GiB, published GiB")
    for case in cases:
        found = judged(case)
        verdict = WORDS[Verdict(int(found.memory.verdict[0]))]
        right.append(verdict in RIGHT[case["expected"]])
        need, mark = found.memory.needed_bytes[0] / GIB, "ok" if right[-1] else "WRONG"
        told = case.get("published_gib", "")
        print(f"  {mark:5} {case['name']:46} {case['expected']:12} {verdict:12} {need:6.1f} {told}")
    print(f"  {sum(right)} of {len(right)} right")

    assert sum(right) / len(right) >= LEAST_RIGHT


def test_the_reported_plans_break_no_rule(table, judged):
    for case in table("cases")["case"]:
        bits = int(judged(case).reject[0]) & ~int(Reject.MEMORY)
        assert bits == 0, f"{case['name']}: {Reject(bits)}"


def test_what_is_left_out_says_why(table):
    given = table("cases")

    assert all(group["why"] and group["threads"] for group in given["left_out"])
    assert all(case["thread"].startswith("https://") and case["facts"] for case in given["case"])
