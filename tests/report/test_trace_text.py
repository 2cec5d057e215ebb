"""A trace as people see it, from a comparison made by hand."""

import io

from rich.console import Console

from escala.measurement.tracing.beside import Beside, Compared
from escala.measurement.tracing.conclude import RankStep
from escala.measurement.tracing.jobs import Collective, Held, Moment
from escala.report.trace_text import print_trace
from escala.report.trace_view import in_words, view_of
from escala.units import GIB

NOTHING = dict.fromkeys(map(str, Held), 0.0)


def moment(kind: str, place: str, gib: float) -> Moment:
    return Moment(kind=kind, chunk=0, place=place, held_bytes={**NOTHING, Held.ACTIVATIONS: gib * GIB})


def pair(name: str, traced: float, formula: float) -> Beside:
    return Beside(name=name, traced=traced, formula=formula, error=formula / traced - 1)


def compared() -> Compared:
    peak = moment("backward", "2", 8.0)
    gathers = [
        Collective(operation="all-gather", axis="sharding", micro_batch=each, count=20, payload_bytes=1e9)
        for each in (0, 1)
    ]
    step = RankStep(rank=1, alike=3, moments=(peak,), collectives=tuple(gathers), flop=1e15)
    return Compared(
        rank=1,
        moment=peak,
        formula_phase="backward",
        peak=pair("peak", 8.0 * GIB, 8.4 * GIB),
        kinds=(pair("weights", 2.0 * GIB, 2.0 * GIB),),
        phases=(pair("backward", 8.0 * GIB, 8.4 * GIB),),
        sent=(pair("sharding", 2e9, 2.1e9),),
        flop=pair("flop", 2e15, 1e15),
        predicted_bytes=9.0 * GIB,
        ranks=(step,),
        rank_peaks=(pair("rank 1", 8.0 * GIB, 8.4 * GIB),),
        libraries={"torch": "2.13.0", "transformers": "5.24.0"},
    )


def shown(width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    print_trace(screen, view_of(compared(), "FSDP 4"))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def test_trace_and_formula_stand_side_by_side_with_their_difference() -> None:
    lines = [" ".join(line.split()) for line in shown(80)]

    assert lines[0] == "Traced without hardware: 8.00 GiB in use, formula 8.40 GiB (+5.0 %)"
    assert "weights, with casts 2.00 2.00 +0.0 % GiB" in lines
    assert "sent, sharding 2.00 2.10 +5.0 % GB a device" in lines
    assert "FLOP, all devices 2.00 1.00 −50.0 % PFLOP" in lines


def test_a_rank_says_its_peak_and_its_collectives() -> None:
    text = " ".join(" ".join(shown(80)).split())

    assert "Rank 1 (3 alike): 8.00 GiB in backward of layer 3, formula 8.40" in text
    assert "40 all-gathers (sharding)" in text
    assert "predicted 9.00 GiB" in text


def test_lines_fit_a_narrow_terminal() -> None:
    assert max(map(len, shown(60))) <= 60


def test_moments_are_told_in_words() -> None:
    told = [in_words(moment(kind, place, 1.0)) for kind, place in WORDS]

    assert told == list(WORDS.values())


WORDS = {
    ("forward", "begin"): "embedding",
    ("forward", "0"): "forward of layer 1",
    ("forward", "end"): "head and loss, forward",
    ("backward", "begin"): "loss, backward",
    ("step", ""): "optimizer step",
}
