"""What lengths of samples make of a plan, as data and in words: padding, attention, waiting."""

import numpy as np

from escala.model.estimate import Estimate, uneven_of
from escala.model.lengths import key_tokens, row_tokens, sample_tokens, useful_row_tokens
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.workload import Batching
from escala.report.answer import LengthsView
from escala.report.numbers import count
from escala.units import percent


def lengths_view(problem: Problem, result: Estimate | None, chosen: int | None) -> LengthsView | None:
    """Lengths and what the recommended plan makes of them; None where all rows are full or nothing fits."""
    workload = problem.workload
    if workload.lengths.batching is Batching.FULL or result is None or chosen is None:
        return None
    plans = Plans.of(result.plans[chosen])
    tokens = sample_tokens(workload)
    half, most, nearly = (float(each) for each in np.quantile(tokens, (0.5, 0.9, 0.99)))
    row, keys = (
        float(np.ravel(each)[0]) for each in (row_tokens(problem, plans), key_tokens(problem, plans))
    )
    return LengthsView(
        batching=str(workload.lengths.batching),
        mean_tokens=float(tokens.mean()),
        p50_tokens=half,
        p90_tokens=most,
        p99_tokens=nearly,
        longest_tokens=float(tokens.max()),
        row_tokens=row,
        useful_share=useful_row_tokens(workload) / row,
        attention_share=keys / workload.sequence_tokens,
        waiting_share=float(uneven_of(problem, plans)[0] / result.step_s[chosen]),
    )


def lengths_words(view: LengthsView) -> list[str]:
    """'mean 412 tokens, half below 300, 99 % below 2,050, longest 4,096' and what is made of them."""
    known = f"mean {count(view.mean_tokens)} tokens, half up to {count(view.p50_tokens)},"
    spread = f"{known} 99 % up to {count(view.p99_tokens)}, longest {count(view.longest_tokens)}"
    useful = f"{view.batching}: {percent(view.useful_share)} of the tokens are no padding"
    attention = f"attention looks back over {percent(view.attention_share)} of the sequence"
    waiting = f"replicas wait {percent(view.waiting_share)} of the step for the longest samples"
    return [spread, useful, attention, waiting, "rates count tokens that are no padding"]
