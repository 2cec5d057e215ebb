"""When arguments of the trainer are wrong, alone or beside their job; shared with the tools that take them.

The words, and the conditions that are of keys alone, are in data/rules/transformers.toml.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from escala.errors import spoken
from escala.foreign.conditions import conditional
from escala.foreign.documents import Syntax
from escala.foreign.facts import is_open, number_of, truth_of
from escala.foreign.findings import Finding, finding, renamed, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, Section, Table, table
from escala.foreign.mapped import is_on, positive
from escala.foreign.places import Node, Scalar, at
from escala.foreign.readings import Reading, VersionIs
from escala.foreign.transformers.arguments import CHECKPOINTING, format_of
from escala.foreign.transformers.code import Built, quantized
from escala.foreign.transformers.reading import Arguments
from escala.foreign.versions import is_before

GROUP: Final = "transformers"
EXPONENT: Final = re.compile(r"[-+]?\d+[eE][-+]?\d+|[-+]?\d*\.\d+[eE]\d+")
"""What people mean as a number and YAML 1.1 reads as text: no dot, or no sign after the e."""
NEAR: Final = 0.9
HYBRID: Final = ("hybrid_shard", "hybrid_shard_zero2", "no_shard")
LOSS_MENDED: Final = "4.46"
"""transformers 4.46 divides the loss by the tokens of all micro-batches (huggingface/transformers#34191)."""
QUANTIZED_SHARDED: Final = "4.45"
DEFAULTS: Final[Mapping[str, Scalar]] = {"save_strategy": "steps", "eval_strategy": "no", "save_steps": 500}


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of arguments that are the trainer's alone, and of how the model is loaded."""
    found = reading.extra["arguments"]
    assert isinstance(found, Arguments)
    yield from _keys(reading, found)
    yield from of_trainer(job, reading, found.node)
    if reading.document.syntax in (Syntax.YAML,):
        yield from numbers_as_text(found.node, KeyTypes(known(found.kind)), reading, is_converted=False)
    if found.built is not None:
        from escala.foreign.trl.rules import of_class

        yield from _loads(job, reading, found.built, found.node)
        yield from of_class(job, reading, found)


def of_trainer(job: Job, reading: Reading, node: Node) -> Iterator[Finding]:
    """What is wrong with the trainer's arguments, whichever tool takes them."""
    yield from conditional(GROUP, job, node, DEFAULTS)
    yield from _fsdp(node)
    yield from _saves_whole(node)
    yield from _evaluation(job, node)
    yield from _best(node)
    yield from _accumulation(job, reading, node)
    yield from over_links(job, reading)


def known(kind: str) -> Table:
    """The table of an argument class: of TRL's with those of the trainer beneath."""
    whole = table("transformers")
    if kind in whole.sections:
        section = whole.sections[kind]
    elif kind in table("trl").sections:
        section = both(whole.sections["TrainingArguments"], table("trl").sections[kind])
    else:
        section = whole.sections["TrainingArguments"]
    fsdp = whole.sections["fsdp_config"]
    return Table(
        tool=whole.tool,
        version=whole.version,
        source=whole.source,
        sections={"": section, "fsdp_config": fsdp},
    )


def both(first: Section, second: Section) -> Section:
    """A class and the one that it extends, whose old keys are those of another tool and stay out."""
    gone = {name: each for name, each in first.gone.items() if name not in second.keys}
    return Section(keys={**first.keys, **second.keys}, gone=gone)


def old_keys(of: Table, section: str, known_keys: Collection[str]) -> Table:
    """The keys alone that went from a section, where another has not got them."""
    gone = {name: each for name, each in of.sections[section].gone.items() if name not in known_keys}
    only = Section(gone=gone, any=True)
    return Table(tool=of.tool, version=of.version, source=of.source, sections={"": only})


class KeyTypes:
    """Types of keys of a table."""

    def __init__(self, of: Table) -> None:
        self.keys = of.sections[""].keys

    def takes(self, key: str, kind: str) -> bool:
        """Whether a key takes a type of JSON and no text."""
        types = self.keys[key].types if key in self.keys else ()
        return kind in types and "string" not in types


def numbers_as_text(node: Node, keys: KeyTypes, reading: Reading, *, is_converted: bool) -> Iterator[Finding]:
    """Numbers that YAML hands over as text."""
    for name, each in node.table.items():
        given = each.scalar
        if isinstance(given, str) and EXPONENT.fullmatch(given) and keys.takes(name, "number"):
            meant = dotted(given)
            yield finding(
                "number-as-text-converted" if is_converted else "number-as-text",
                each,
                edits=(replaced(each, meant),),
                key=name,
                given=given,
                meant=meant,
                tool=f"{reading.title} {reading.version}",
            )


def dotted(given: str) -> str:
    """A number as YAML 1.1 reads one: 5e-5 is 5.0e-5, 1.5e9 is 1.5e+9."""
    digits, _, exponent = given.lower().partition("e")
    digits = digits if "." in digits else f"{digits}.0"
    return f"{digits}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def texts(node: Node) -> frozenset[str]:
    """Keys whose text is meant as a number, for which types are no second finding."""
    return frozenset(
        name
        for name, each in node.table.items()
        if isinstance(each.scalar, str) and EXPONENT.fullmatch(each.scalar)
    )


def autos(node: Node, keys: KeyTypes, reading: Reading) -> Iterator[Finding]:
    """Auto where a tool wants true, false or a number."""
    for name, each in node.table.items():
        if isinstance(each.scalar, str) and each.scalar.strip() == "auto":
            wanted = [kind for kind in ("boolean", "integer", "number") if keys.takes(name, kind)]
            if wanted:
                tool = f"{reading.title} {reading.version}"
                yield finding("trainer-auto", each, key=name, tool=tool, wanted=f"a {wanted[0]}")


def _keys(reading: Reading, found: Arguments) -> Iterator[Finding]:
    """Keys of the table; where a script's own stand beside them, only what is nearly one of them."""
    version = reading.version if reading.version_is is not VersionIs.ASSUMED else ""
    calls = found.built.arguments if found.built is not None else ()
    for call in calls:
        keys, methods = known(call.name), table("trl")
        ignored: frozenset[str] = frozenset()
        if call.name in methods.sections:
            old = old_keys(methods, call.name, keys.sections[""].keys)
            ignored = frozenset(old.sections[""].gone)
            yield from KeyCheck(table=old, tool=methods.tool).findings(call.keywords)
        check = KeyCheck(table=keys, tool=reading.title, version=version, ignored=ignored)
        yield from check.findings(call.keywords)
    if found.built is not None or found.kind == "fsdp_config":
        return
    keys = known(found.kind)
    yield from autos(found.node, KeyTypes(keys), reading)
    check = KeyCheck(table=_lenient(keys), tool=reading.title, version=version, ignored=texts(found.node))
    yield from check.findings(found.node)
    names = (*keys.sections[""].keys,)
    for name, each in found.node.table.items():
        close = get_close_matches(name, names, n=1, cutoff=NEAR)
        if (
            close
            and name not in names
            and name not in keys.sections[""].gone
            and close[0] not in found.node.table
        ):
            edits = (renamed(each, close[0]),) if each.key is not None and reading.document.tree else ()
            yield finding("trainer-misspelt", each, edits=edits, key=name, meant=close[0])


def _lenient(keys: Table) -> Table:
    top = keys.sections[""]
    sections = {**keys.sections, "": Section(keys=top.keys, gone=top.gone, any=True)}
    return Table(tool=keys.tool, version=keys.version, source=keys.source, sections=sections)


def _fsdp(node: Node) -> Iterator[Finding]:
    given = node.table.get("fsdp")
    if given is None or not is_on(given):
        return
    words = _words(given)
    if words:
        yield finding("trainer-fsdp-words", given, fsdp=" ".join(words))
    version = at(node, "fsdp_config", "version") or at(node, "fsdp_config", "fsdp_version")
    hybrid = [word for word in words if word in HYBRID]
    is_first = version is not None and str(version.scalar) == "1"
    if hybrid and not is_first and _is_table(node.table.get("fsdp_config")):
        yield finding("trainer-fsdp-hybrid", given, word=hybrid[0])
    for key in CHECKPOINTING:
        switch = node.table.get(key)
        if switch is not None and truth_of(switch):
            yield finding("trainer-checkpointing-fsdp", switch, key=key)


def _words(given: Node) -> list[str]:
    if given.items:
        return [str(each.scalar) for each in given.items]
    text = given.scalar
    return text.split() if isinstance(text, str) and truth_of(given) is None and not is_open(text) else []


def _is_table(node: Node | None) -> bool:
    """Whether what stands there, or that nothing does, is known here and not in another file."""
    return node is None or isinstance(node.value, dict)


def _saves_whole(node: Node) -> Iterator[Finding]:
    config = node.table.get("fsdp_config")
    if not is_on(node.table.get("fsdp")) or config is None or not config.table:
        return
    kind = at(config, "state_dict_type") or at(config, "fsdp_state_dict_type")
    if kind is None or kind.scalar == "FULL_STATE_DICT":
        yield finding(
            "trainer-full-state-save", kind or config, by_default="" if kind else " where none is given"
        )


def evaluates(node: Node) -> bool:
    """Whether the trainer evaluates at all."""
    strategy = node.table.get("eval_strategy") or node.table.get("evaluation_strategy")
    on = strategy is not None and strategy.scalar not in ("no", False, None)
    return on or truth_of(node.table.get("do_eval")) is True


def _evaluation(job: Job, node: Node) -> Iterator[Finding]:
    """Evaluation computes more samples at once than training does."""
    micro, given = node.table.get("per_device_train_batch_size"), node.table.get("per_device_eval_batch_size")
    train, evaluated = positive(micro) if micro else None, positive(given) if given else 8
    if micro is None or train is None or evaluated is None or not evaluates(node):
        return
    if evaluated >= 4 * train:
        by_default = "" if given else ", the default"
        yield finding(
            "trainer-eval-batch",
            given or micro,
            edits=(replaced(given, str(train)),) if given is not None else (),
            eval_batch=evaluated,
            micro_batch=train,
            by_default=by_default,
        )


def _best(node: Node) -> Iterator[Finding]:
    """The best model can be loaded only if it was saved when it was evaluated."""
    best = node.table.get("load_best_model_at_end")
    if best is None or not truth_of(best):
        return
    evals, saves = _strategy(node, "eval_strategy", "no"), _strategy(node, "save_strategy", "steps")
    if is_open(evals) or is_open(saves) or saves == "best":
        return
    if evals != saves:
        yield finding("trainer-best-strategies", best, evals=evals, saves=saves)
        return
    each = {name: node.table.get(name) for name in ("save_steps", "eval_steps", "logging_steps")}
    every = {name: number_of(value) for name, value in each.items() if value is not None}
    save = every.get("save_steps", 500) if each["save_steps"] is None or "save_steps" in every else None
    evaluated = every.get("eval_steps", every.get("logging_steps"))
    if evals != "steps" or not save or not evaluated or min(save, evaluated) < 1 or save % evaluated == 0:
        return
    multiple = int(-(-save // evaluated) * evaluated)
    yield finding(
        "trainer-best-steps", best, save_steps=int(save), eval_steps=int(evaluated), multiple=multiple
    )


def _strategy(node: Node, key: str, default: str) -> str:
    given = node.table.get(key) or node.table.get({"eval_strategy": "evaluation_strategy"}.get(key, key))
    if given is None or given.value is None:
        return default
    return "no" if given.scalar is False else str(given.scalar)


def _accumulation(job: Job, reading: Reading, node: Node) -> Iterator[Finding]:
    steps = node.table.get("gradient_accumulation_steps")
    count = None if steps is None else positive(steps)
    is_old = reading.tool in ("transformers", "trl") and reading.version_is is VersionIs.GIVEN
    if reading.tool == "trl" or steps is None or count is None or count < 2 or not is_old:
        return
    if is_before(reading.version, LOSS_MENDED) and not job.value("packing"):
        yield finding("trainer-accumulation-loss", steps, steps=count, version=reading.version)


def over_links(job: Job, reading: Reading) -> Iterator[Finding]:
    """Adapters under ZeRO-3, unless one node is all there is."""
    nodes, method = job.count("nodes"), reading.fact("method")
    if method is None or method.is_default or method.value not in ("lora", "qlora") or nodes == 1:
        return
    if job.value("zero") != 3 or not any(each.tool == "deepspeed" for each in job.readings):
        return
    place = next((ref.place for ref in reading.references if ref.said == "deepspeed"), method.place)
    over = f" over {nodes} nodes" if nodes else ": slow as soon as there are several nodes"
    yield finding("lora-zero-3", place, over=over)


def _loads(job: Job, reading: Reading, built: Built, node: Node) -> Iterator[Finding]:
    """How models are loaded beside how they are trained."""
    for load in built.loads:
        yield from _device_map(job, load.keywords, node)
        yield from _formats(job, reading, load.keywords, node, built)
    bits = next((each for each in map(quantized, built.loads) if each is not None), None)
    trains = bool(built.arguments) or bool(built.trainers)
    if bits is not None and trains and not built.uses_adapters:
        yield finding("load-quantized-full", bits[1], bits=bits[0])
    is_old = reading.version_is is VersionIs.GIVEN and is_before(reading.version, QUANTIZED_SHARDED)
    if bits is not None and bits[0] == 4 and job.value("zero") == 3 and is_old:
        yield finding("load-quantized-old", bits[1], version=reading.version)
    yield from _metrics(built, node)


def _device_map(job: Job, keywords: Node, node: Node) -> Iterator[Finding]:
    given = keywords.table.get("device_map")
    if given is None or given.scalar not in ("auto", "balanced", "balanced_low_0", "sequential"):
        return
    devices, is_fsdp = job.sure("devices"), is_on(node.table.get("fsdp"))
    if job.value("zero") == 3 and not is_fsdp:
        yield finding("load-device-map-zero", given, given=spoken(given.value))
    elif (devices is not None and devices > 1) or is_fsdp or job.value("zero") is not None:
        yield finding("load-device-map", given, given=spoken(given.value), devices=devices or "several")
    else:
        yield finding("load-device-map-alone", given, given=spoken(given.value))


def _formats(job: Job, reading: Reading, keywords: Node, node: Node, built: Built) -> Iterator[Finding]:
    """Formats of weights against the scaler, and against kernels that take two of them."""
    given = keywords.table.get("dtype") or keywords.table.get("torch_dtype")
    weights = None if given is None else format_of(given)
    half = [key for key in ("bf16", "fp16") if is_on(node.table.get(key))]
    if given is not None and weights == "fp16" and half == ["fp16"] and not built.uses_adapters:
        yield finding("load-half-trained", given)
    attention = keywords.table.get("attn_implementation")
    is_flash = attention is not None and "flash" in str(attention.scalar)
    is_old = reading.version_is is VersionIs.GIVEN and is_before(reading.version, "5")
    is_whole = weights == "fp32" or (given is None and is_old and "quantization_config" not in keywords.table)
    if attention is not None and is_flash and is_whole and not half and _decides(node, built):
        yield finding("load-flash-format", given or attention, format="float32")


def _decides(node: Node, built: Built) -> bool:
    """Whether mixed precision is settled here: TRL's classes turn bf16 on where nothing is said."""
    kinds = {each.name for each in built.arguments}
    return bool(kinds) and all(kind.endswith("TrainingArguments") for kind in kinds)


def _metrics(built: Built, node: Node) -> Iterator[Finding]:
    """Metrics that need the logits of the whole evaluation set."""
    if not evaluates(node) or is_on(node.table.get("prediction_loss_only")):
        return
    if is_on(node.table.get("eval_accumulation_steps")) or is_on(node.table.get("batch_eval_metrics")):
        return
    for trainer in built.trainers:
        metrics = trainer.keywords.table.get("compute_metrics")
        if metrics is not None and metrics.value is not None and _is_whole(trainer.keywords, node):
            yield finding("trainer-eval-logits", metrics)


def _is_whole(keywords: Node, node: Node) -> bool:
    generates = is_on(node.table.get("predict_with_generate"))
    return "preprocess_logits_for_metrics" not in keywords.table and not generates
