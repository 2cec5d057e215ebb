"""Why a plan is not the recommended one, in a few words. Compares two predictions; predicts nothing."""

from collections.abc import Mapping

from escala.model.explain import TERMS
from escala.model.plan import Compile, Plan, Recompute, Schedule, Split
from escala.report.numbers import percent, seconds


def techniques(plan: Plan) -> tuple[str, ...]:
    """What a plan makes use of, in words."""
    uses = {
        _sharing(plan): plan.dp * plan.cp > 1,
        "no reshard": plan.zero == 3 and not plan.reshard,
        "TP": plan.tp > 1,
        "CP": plan.cp > 1,
        "EP": plan.ep > 1,
        "PP": plan.pp > 1,
        "interleaving": plan.schedule is Schedule.INTERLEAVED,
        "zero-bubble": plan.schedule is Schedule.ZERO_BUBBLE_V,
        "a stage split": plan.split is not Split.EVEN,
        "recompute": plan.recompute is not Recompute.NONE,
        "compile": plan.compile is not Compile.OFF,
        "fused loss": plan.fused_loss,
        "another mesh order": not plan.placement.startswith("tp-cp-dp"),
    }
    return tuple(name for name, used in uses.items() if used)


def _sharing(plan: Plan) -> str:
    if plan.zero == 3:
        return "HSDP" if plan.shard < plan.dp * plan.cp else "FSDP"
    return f"ZeRO-{plan.zero}" if plan.zero else "DDP"


def difference(value: float, reference: float) -> str:
    """How much slower or faster: '2 % slower', 'as fast'."""
    ratio = value / reference - 1.0
    if abs(ratio) < 5e-4:
        return "as fast"
    return f"{percent(abs(ratio))} {'slower' if ratio > 0 else 'faster'}"


def against(plan: Plan, terms_s: Mapping[str, float], best: Plan, best_terms_s: Mapping[str, float]) -> str:
    """Difference to the recommended plan: how much, what it adds, and which term grows most."""
    total_s, reference_s = sum(terms_s.values()), sum(best_terms_s.values())
    parts = [difference(total_s, reference_s)]
    added = [name for name in techniques(plan) if name not in techniques(best)]
    parts += [f"adds {', '.join(added)}"] if added else []
    parts += _grown(terms_s, best_terms_s) if total_s > reference_s else []
    return "; ".join(parts)


def _grown(terms_s: Mapping[str, float], best_terms_s: Mapping[str, float]) -> list[str]:
    name = max(terms_s, key=lambda term: terms_s[term] - best_terms_s[term])
    grown_s = terms_s[name] - best_terms_s[name]
    title = TERMS[name][0].removesuffix(", exposed")
    return [f"+{seconds(grown_s)} {title}"] if grown_s > 0 else []
