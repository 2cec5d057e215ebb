"""Tables of the documentation: constants of the model, and published runs beside their predictions."""

import ast
import csv
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.accelerators import SHARES, accelerator_quantities, accelerators
from escala.catalog.engines import assumption_settings, engine_settings, engines
from escala.catalog.networks import network
from escala.formats.network_toml import network_from_description
from escala.model.estimate import Estimate, estimate
from escala.model.plan import Compile, Plan, Plans, Precision, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.rejects import Reject
from escala.model.workload import Workload
from escala.planning.simplicity import describe

ROOT = Path(__file__).resolve().parents[1]
GLUE = "\u00a0"  # a space that does not break


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(map(str, row)) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def number(value: object) -> str:
    """A number with up to four significant digits; very large ones mean no limit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    if value >= 1e17:
        return "no limit"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


def between(setting: object) -> str:
    """The range of a number, or nothing."""
    low, high = getattr(setting, "low", None), getattr(setting, "high", None)
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def users() -> dict[str, list[str]]:
    """For every attribute name, the functions of the model and the planner that read it."""
    found: dict[str, list[str]] = {}
    for package in ("model", "planning", "report"):
        for path in sorted((ROOT / "src" / "escala" / package).glob("*.py")):
            for node in ast.parse(path.read_text()).body:
                for function in _functions(node):
                    for name in {each.attr for each in ast.walk(function) if isinstance(each, ast.Attribute)}:
                        found.setdefault(name, []).append(f"`{path.stem}.{function.name}`")
    return found


def _functions(node: ast.stmt) -> Iterator[ast.FunctionDef]:
    if isinstance(node, ast.FunctionDef):
        yield node
    elif isinstance(node, ast.ClassDef):
        yield from (each for each in node.body if isinstance(each, ast.FunctionDef))


def used_by(name: str, readers: dict[str, list[str]], most: int = 4) -> str:
    """Where a number is read, at most four places."""
    places = readers.get(name, [])
    return ", ".join(places[:most]) + (f" and {len(places) - most} more" if len(places) > most else "")


def assumption_table() -> str:
    """Every shared constant."""
    readers = users()
    rows = [
        (f"`{name}`", number(s.value), between(s), s.kind, s.formula, used_by(name, readers))
        for name, s in assumption_settings().items()
    ]
    return table(("constant", "value", "range", "kind", "what it is", "used by"), rows)


def source_table() -> str:
    """Sources of assumptions and engines."""
    found = {s.source.title: (s.source, set[str]()) for s in assumption_settings().values()}
    for s in assumption_settings().values():
        found[s.source.title][1].add("shared constants")
    for name in engines():
        for part in engine_settings(name).values():
            for s in part.values():
                found.setdefault(s.source.title, (s.source, set()))[1].add("engines")
    rows = [(s.title, s.publisher, s.date, ", ".join(sorted(where))) for s, where in found.values()]
    return table(("source", "publisher", "date", "of"), rows)


def engine_table(part: str) -> str:
    """One row a number, one column an engine; the letter is the kind."""
    readers, names = users(), engines()
    settings = {name: engine_settings(name)[part] for name in names}
    rows = []
    for field in settings[names[0]]:
        cells = [f"{number(settings[n][field].value)} {settings[n][field].kind[0]}" for n in names]
        rows.append((f"`{field}`", *cells, used_by(field, readers, 2)))
    return table(("number", *names, "used by"), rows)


def engine_ranges() -> str:
    """The ranges that engine records give."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name in engines():
        for part in engine_settings(name).values():
            for field, s in part.items():
                if between(s):
                    found.setdefault((field, number(s.value), between(s)), []).append(name)
    rows = [
        (f"`{field}`", value, span, ", ".join(who)) for (field, value, span), who in sorted(found.items())
    ]
    return table(("number", "value", "range", "engines"), rows)


def engine_list() -> str:
    """Engines with what they are and what they lack."""
    rows = [
        (f"`{e.name}`", e.title, e.versions, e.source, ", ".join(e.lacks) or "-")
        for e in map(engine, engines())
    ]
    return table(("engine", "is", "versions", "source", "lacks"), rows)


def share_table() -> str:
    """Achieved shares of every accelerator, with the origin of its GEMM share."""
    rows = []
    for name in accelerators():
        known = accelerator_quantities(name)
        own = known["gemm_efficiency"]
        shares = [number(known[share].value) if share in known else "-" for share in SHARES]
        rows.append((f"`{name}`", *shares, own.kind, own.condition, own.source.title))
    heads = ("GEMM", "fp8", "memory", "fp32", "tf32", "flash 2", "flash 3")
    return table(("accelerator", *heads, "kind of GEMM share", "condition", "source of GEMM share"), rows)


# Accuracy: published runs of tests/golden/data, predicted


@dataclass(frozen=True)
class Scored:
    """One published run beside its prediction; a value is seconds a step, or tokens a second of a device."""

    name: str
    layout: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over published, less one."""
        return self.predicted / self.published - 1.0


def golden(name: str) -> dict[str, Any]:
    """A file of published runs."""
    return tomllib.loads((ROOT / "tests" / "golden" / "data" / f"{name}.toml").read_text())


def predicted(problem: Problem, plan: Plan) -> Estimate:
    """The estimate of one plan; a row that the model rejects for more than memory is a fault of ours."""
    found = estimate(problem, Plans.of(plan))
    assert not int(found.reject[0]) & ~int(Reject.MEMORY), f"{plan} is rejected"
    return found


def gpt_rows(name: str) -> Iterator[Scored]:
    """Rows of Narayanan et al. and Korthikanti et al.: GPT on A100 with Megatron-LM of that time."""
    data = golden(name)
    for row in data["row"]:
        row = {**data["common"], **row}
        yield _gpt(row)


def _gpt(row: dict[str, Any]) -> Scored:
    tokens, batch, layers, hidden = (row[k] for k in ("sequence_tokens", "global_batch", "layers", "hidden"))
    keys = {
        **{key: row[key] for key in ("layers", "hidden", "heads", "vocab")},
        **{"positions": tokens, "norm": "layer", "bias": True, "gated": False, "tied": True},
    }
    plan = Plan(
        dp=row["dp"],
        tp=row["tp"],
        pp=row["pp"],
        sp=row.get("sp", False),
        schedule=_schedule(row),
        virtual_stages=row["virtual_stages"],
        micro_batch=row["micro_batch"],
        micro_batches=batch // row["dp"] // row["micro_batch"],
        recompute=Recompute[row.get("recompute", "full").upper()],
        precision=Precision.FP16,
    )
    problem = Problem(
        workload=Workload(
            network=network_from_description({"network": keys}, row["name"]),
            sequence_tokens=tokens,
            global_batch=batch,
        ),
        cluster=cluster_for("a100-sxm-80gb", row["devices"]),
        engine=engine(row["engine"]),
        assumptions=assumptions(),
    )
    # the papers' own count, recompute included (Narayanan et al. 2021, section 5.1)
    extra = 1 + tokens / (6 * hidden) + row["vocab"] / (16 * layers * hidden)
    flop = 96 * batch * tokens * layers * hidden**2 * extra
    published = row.get("step_s") or flop / (row["achieved_tflops"] * 1e12 * row["devices"])
    return Scored(row["name"], describe(plan), published, float(predicted(problem, plan).step_s[0]))


def _schedule(row: dict[str, Any]) -> Schedule:
    if row["pp"] == 1:
        return Schedule.NONE
    return Schedule.INTERLEAVED if row["virtual_stages"] > 1 else Schedule.ONE_F_ONE_B


def torchtitan_rows() -> Iterator[tuple[Scored, Scored | None]]:
    """Rows of torchtitan: tokens a second of each device, and reserved GiB."""
    data = golden("torchtitan")
    {source["name"]: source["condition"] for source in data["source"]}
    for row in data["row"]:
        pp, replicas = row["pp"], row["dp"] * row["cp"]
        plan = Plan(
            **{axis: row[axis] for axis in ("dp", "tp", "pp", "cp", "micro_batch", "micro_batches")},
            sp=row["tp"] > 1,
            zero=3,
            reshard=pp == 1,
            shard=replicas,
            schedule=_schedule(row),
            virtual_stages=row["virtual_stages"],
            recompute=Recompute[row["recompute"].upper()],
            compile=Compile(int(row["compile"])),
            precision=Precision.FP8_TENSORWISE if row["fp8"] else Precision.BF16,
            fused_loss=row.get("fused_loss", False),
        )
        batch, tokens = row["dp"] * row["micro_batch"] * row["micro_batches"], row["sequence_tokens"]
        problem = Problem(
            workload=Workload(network=network(row["network"]), sequence_tokens=tokens, global_batch=batch),
            cluster=cluster_for(row["device"], row["devices"]),
            engine=engine("pytorch"),
            assumptions=assumptions(),
        )
        e = predicted(problem, plan)
        name = f"{row['network']}, {tokens // 1024} k, {row['devices']} x {row['device']}"
        layout = describe(plan) + (" · fp8" if row["fp8"] else "")
        rate = batch * tokens / float(e.step_s[0]) / row["devices"]
        memory = row.get("reserved_gib")
        reserved = float(e.memory.reserved_bytes[0]) / 2**30
        yield (
            Scored(name, layout, row["tokens_per_s"], rate),
            None if memory is None else Scored(name, layout, memory, reserved),
        )


def percent(value: float) -> str:
    """A signed share."""
    return f"{value:+.1%}".replace("%", f"{GLUE}%").replace("-", "−")


def share(value: float) -> str:
    """A share without sign."""
    return f"{value:.1%}".replace("%", f"{GLUE}%")


def summary(rows: Sequence[Scored]) -> str:
    """Mean and median absolute error, bias."""
    errors = [row.error for row in rows]
    sizes = f"mean absolute error {share(mean(map(abs, errors)))}, median {share(median(map(abs, errors)))}"
    return f"{len(rows)} rows: {sizes}, bias {percent(mean(errors))}; worst {worst(rows).name}."


def worst(rows: Sequence[Scored]) -> Scored:
    """The row with the largest error of either sign."""
    return max(rows, key=lambda row: abs(row.error))


def score_table(rows: Sequence[Scored], unit: str) -> str:
    """Published against predicted."""
    lines = [(r.name, r.layout, f"{r.published:,.4g}", f"{r.predicted:,.4g}", percent(r.error)) for r in rows]
    head = ("run", "plan", f"published, {unit}", f"predicted, {unit}", "error")
    return table(head, lines) + "\n" + summary(rows) + "\n"


def sc21_table() -> str:
    """Narayanan et al. 2021, Table 1."""
    return score_table(list(gpt_rows("narayanan-2021")), "s")


def korthikanti_table() -> str:
    """Korthikanti et al. 2022, Table 5."""
    return score_table(list(gpt_rows("korthikanti-2022")), "s")


def torchtitan_table() -> str:
    """Rates of torchtitan."""
    return score_table([rate for rate, _ in torchtitan_rows()], "tokens/s")


def torchtitan_memory_table() -> str:
    """Reserved peaks of torchtitan."""
    return score_table([memory for _, memory in torchtitan_rows() if memory is not None], "GiB")


def accuracy_table() -> str:
    """All published runs in short, with the worst row of each source."""
    rates, memories = zip(*torchtitan_rows(), strict=True)
    sources = {
        "Narayanan et al. 2021 (SC21), Table 1, A100, seconds": list(gpt_rows("narayanan-2021")),
        "Korthikanti et al. 2022, Table 5, A100, seconds": list(gpt_rows("korthikanti-2022")),
        "torchtitan, Llama 3.1 on H100 and H200, tokens/s": rates,
        "torchtitan, the same runs, reserved GiB": [row for row in memories if row is not None],
    }
    return table(
        ("published", "rows", "mean absolute error", "bias", "worst row"),
        [(name, *_in_short(rows)) for name, rows in sources.items()],
    )


def _in_short(rows: Sequence[Scored]) -> tuple[object, ...]:
    errors, most = [row.error for row in rows], worst(rows)
    furthest = f"{most.name}: {percent(most.error)}"
    return len(rows), share(mean(map(abs, errors))), percent(mean(errors)), furthest


def halves_table() -> str:
    """Sources of which one half was calibrated on and the other scored, as scripts/halves wrote them."""
    rows = csv.DictReader((ROOT / "docs" / "data" / "halves.csv").read_text().splitlines())
    errors = ("error before", "after", "in the published fit")
    head = ("source", "own runs", "scored", *errors, "inside before", "after")
    return table(head, [tuple(_half(row)) for row in rows])


def _half(row: Mapping[str, str]) -> Iterator[str]:
    yield from (row["source"], row["own_runs"])
    yield f"{row['held_runs']} in {row['held_configurations']} configurations"
    for name in ("before", "after", "in_fit"):
        yield f"{100 * float(row[name]):.1f}{GLUE}%"
    for name in ("inside_before", "inside_after"):
        yield f"{100 * float(row[name]):.0f}{GLUE}%"


TABLES: dict[str, Callable[[], str]] = {
    "assumptions": assumption_table,
    "sources": source_table,
    "engines": engine_list,
    "engine_time": lambda: engine_table("time"),
    "engine_memory": lambda: engine_table("memory"),
    "engine_ranges": engine_ranges,
    "shares": share_table,
    "accuracy": accuracy_table,
    "sc21": sc21_table,
    "korthikanti": korthikanti_table,
    "torchtitan": torchtitan_table,
    "torchtitan_memory": torchtitan_memory_table,
    "halves": halves_table,
}
