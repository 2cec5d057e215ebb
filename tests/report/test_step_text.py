from dataclasses import fields, replace

from rich.console import Console

from escala.measurement.job.record import HeldMemory, StepRun, Tried, WhatIf
from escala.measurement.job.spread import spread
from escala.measurement.sampling.usage import Level, NodeUsage
from escala.report.step_text import print_step, print_what_if

MIB = 2.0**20
RUN = StepRun(
    target="train:make",
    device="cpu",
    ranks=1,
    threads=2,
    parallelism="single device",
    model="Net",
    parameters=3_500_000,
    optimizer="AdamW",
    samples=4,
    tokens=512,
    precision=None,
    recomputes=False,
    step_s=spread([0.080, 0.081, 0.082, 0.082, 0.083, 0.090]),
    unit="tokens",
    rate_per_s=512 / 0.082,
    flop=2.46e9,
    peak_bytes=35 * MIB,
    memory=HeldMemory(
        parameters_bytes=3 * MIB,
        buffers_bytes=0.0,
        gradients_bytes=0.0,
        optimizer_bytes=7 * MIB,
        activations_bytes=23 * MIB,
        temporary_bytes=2 * MIB,
        other_bytes=0.0,
        peak_bytes=35 * MIB,
    ),
    usage=(),
    what_if=None,
    notes=("a note",),
    is_interrupted=False,
)
PLAIN = Tried(
    practice="plain", title="plain", verdict="", step_s=spread([0.08] * 6), peak_bytes=35 * MIB, loss=6.0
)
FASTER = Tried(
    practice="workers",
    title="DataLoader workers",
    verdict="faster",
    step_s=spread([0.04] * 6),
    gain=spread([1.9, 1.95, 2.0, 2.0, 2.05, 2.1]),
    peak_bytes=35 * MIB,
    loss=6.0,
    loss_change=2e-8,
)
ROUNDED = replace(FASTER, practice="amp", title="16-bit products (autocast)", loss_change=-0.0004)
COMPILED = replace(FASTER, practice="compile", title="torch.compile", first_step_s=38.0)
FAILED = Tried(practice="compile", title="torch.compile", verdict="failed", why="no compiler")


def shown(draw, given) -> list[str]:
    console = Console(width=80, record=True, file=None, force_terminal=False, highlight=False)
    with console.capture() as capture:
        draw(console, given)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    return [" ".join(line.split()) for line in lines]


def tried(*given: Tried) -> WhatIf:
    return WhatIf(rounds=6, steps=3, unit="tokens", plain=PLAIN, tried=given, is_interrupted=False)


def test_a_step_shows_its_time_rate_memory_and_notes():
    text = " ".join(shown(print_step, RUN))

    assert "train:make · Net · 3.5 M parameters · AdamW · cpu, 2 threads" in text
    assert "82 ms (80 to 90 ms) · 6 steps · 6,240 tokens/s · 2.46 GFLOP" in text
    assert "peak 35.0 MiB · parameters 3.00 MiB · optimizer 7.00 MiB activations 23.0 MiB" in text
    assert "gradients" not in text
    assert "Note a note" in text


def test_a_step_alone_shows_no_model():
    bare = replace(RUN, model=None, parameters=None, samples=None, tokens=None, rate_per_s=None, memory=None)

    text = " ".join(shown(print_step, bare))

    assert "parameters" not in text
    assert "tokens" not in text


def test_practices_stand_beside_the_plain_step_with_interval_and_loss():
    lines = shown(print_what_if, tried(FASTER, ROUNDED))

    assert "as it is 80 ms 35.0 MiB 6" in lines
    assert any("40 ms × 2.00 (1.90 to 2.10) 35.0 MiB same" in line for line in lines)
    assert any("−0.04 %" in line for line in lines)


def test_a_failed_practice_is_told_with_its_reason_and_a_slow_first_step_too():
    text = " ".join(shown(print_what_if, tried(FAILED, COMPILED)))

    assert "Not torch.compile: no compiler" in text
    assert "torch.compile: the first step took 38 s" in text


def test_of_many_ranks_the_first_eight_show_what_they_used():
    nothing = dict.fromkeys(field.name for field in fields(NodeUsage))
    one = NodeUsage(
        **(nothing | {"node": "n0", "cores": 64, "gpus": (), "busy_cores": Level(mean=3, peak=4)})
    )
    many = tuple(replace(one, rank=rank) for rank in range(10))

    lines = shown(print_step, replace(RUN, usage=many))

    assert "Used n0 rank 0 · 3 of 64 cores" in lines
    assert "n0 rank 7 · 3 of 64 cores" in lines
    assert "2 more ranks in --json" in lines
