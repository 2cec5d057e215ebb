"""Why a plan is not the recommended one, in a few words. Compares two predictions; predicts nothing."""

from collections.abc import Mapping

from escala.model.explain import TERMS
from escala.model.plan import Compile, Plan, Recompute, Schedule, Split
from escala.report.numbers import seconds
from escala.units import difference


def _choices(plan: Plan) -> dict[str, str]:
    """What a plan uses where it can use one of several; empty where none."""
    schedules = {Schedule.INTERLEAVED: "interleaving", Schedule.ZERO_BUBBLE_V: "zero-bubble"}
    recomputes = {
        Recompute.NONE: "",
        Recompute.SELECTIVE: "selective recompute",
        Recompute.FULL: "full recompute",
        Recompute.FIRST_LAYERS: "recompute of some layers",
    }
    return {
        "sharing": _sharing(plan) if plan.dp * plan.cp > 1 else "",
        "schedule": schedules.get(plan.schedule, "") if plan.pp > 1 else "",
        "recompute": recomputes[plan.recompute],
    }


def _switches(plan: Plan) -> dict[str, bool]:
    return {
        "TP": plan.tp > 1,
        "CP": plan.cp > 1,
        "EP": plan.ep > 1,
        "PP": plan.pp > 1,
        "a stage split": plan.split is not Split.EVEN,
        "compile": plan.compile is not Compile.OFF,
        "fused loss": plan.fused_loss,
        "another mesh order": not plan.placement.startswith("tp-cp-dp"),
    }


def _keeps(plan: Plan) -> bool:
    return plan.zero == 3 and not plan.reshard


def _sharing(plan: Plan) -> str:
    if plan.zero == 3:
        return "HSDP" if plan.shard < plan.dp * plan.cp else "FSDP"
    return f"ZeRO-{plan.zero}" if plan.zero else "DDP"


def against(plan: Plan, terms_s: Mapping[str, float], best: Plan, best_terms_s: Mapping[str, float]) -> str:
    """Difference to the recommended plan: how much, what it adds, and which term grows most."""
    total_s, reference_s = sum(terms_s.values()), sum(best_terms_s.values())
    changes = _exchanged(plan, best) + _added(plan, best)
    grown = _grown(terms_s, best_terms_s) if total_s > reference_s else []
    return "; ".join([difference(total_s, reference_s), *(changes + grown or ["no simpler"])])


def _exchanged(plan: Plan, best: Plan) -> list[str]:
    """Choices of which both plans make one, but not the same."""
    pairs = [(own, _choices(best)[name]) for name, own in _choices(plan).items()]
    return [f"{own} in place of {other}" for own, other in pairs if own and other and own != other]


def _added(plan: Plan, best: Plan) -> list[str]:
    """What only this plan uses, and what only the recommended one does where no title shows it."""
    own, other = _switches(plan), _switches(best)
    names = [name for name, choice in _choices(plan).items() if choice and not _choices(best)[name]]
    added = [_choices(plan)[name] for name in names] + [name for name in own if own[name] and not other[name]]
    left = [name for name in ("compile", "fused loss") if other[name] and not own[name]]
    parts = [f"adds {', '.join(added)}"] if added else []
    parts += ["keeps weights gathered"] if _keeps(plan) and not _keeps(best) else []
    return parts + ([f"leaves out {', '.join(left)}"] if left else [])


def _grown(terms_s: Mapping[str, float], best_terms_s: Mapping[str, float]) -> list[str]:
    name = max(terms_s, key=lambda term: terms_s[term] - best_terms_s[term])
    grown_s = terms_s[name] - best_terms_s[name]
    title = TERMS[name][0].removesuffix(", exposed")
    return [f"+{seconds(grown_s)} {title}"] if grown_s > 0 else []
