import io

from rich.console import Console

from escala.report.answer import ScalePointView
from escala.report.curve_text import print_curve


def point(devices: int, *, is_risky: bool, device_hours: float | None = None) -> ScalePointView:
    return ScalePointView(
        devices=devices,
        plan_title=f"FSDP {devices} · mb 1",
        step_s=8.0 / devices,
        interval_ratio=1.14,
        tokens_per_s=1e4,
        mfu=0.4,
        efficiency=1.0,
        is_risky=is_risky,
        device_hours=device_hours,
        energy_j_per_step=None,
        cost=None,
    )


def shown(*points: ScalePointView) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    print_curve(console, points)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_counts_without_margin_are_marked():
    _, two, four, *_ = shown(point(2, is_risky=True), point(4, is_risky=False))

    assert "FSDP 2 risky" in two
    assert "risky" not in four


def test_device_hours_stand_there_where_the_run_is_known():
    assert "GPU-h" not in shown(point(2, is_risky=False))[0]
    assert "GPU-h" in shown(point(2, is_risky=False, device_hours=44_046.0))[0]
    assert "44,000" in shown(point(2, is_risky=False, device_hours=44_046.0))[1]
