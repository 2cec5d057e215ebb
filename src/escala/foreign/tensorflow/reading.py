"""TensorFlow's clusters and strategies as facts of a job. Nothing of a program is run."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.pythontext import imported
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.script.code import Code, keyword
from escala.foreign.tensorflow.clusters import clusters_of
from escala.foreign.tensorflow.rules import rules_of

NAME: Final = "tensorflow"
TITLE: Final = "TensorFlow"
VERSION: Final = "2.21.0"
POLICIES: Final = {"mixed_bfloat16": "bf16", "mixed_float16": "fp16"}
MIRRORED: Final = ("MirroredStrategy", "MultiWorkerMirroredStrategy")
OPTIMIZERS: Final = ("Adam", "AdamW", "SGD", "RMSprop", "Lion", "Adafactor")


def score(document: Document) -> int:
    """Certain with a cluster, likely for a program that imports TensorFlow."""
    if clusters_of(document):
        return 90
    if document.syntax is not Syntax.PYTHON or document.code is None:
        return 0
    return 30 if imported(document.code, "tensorflow", "keras") else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    clusters = clusters_of(document)
    code = Code(document) if document.code is not None else None
    facts = [fact("nodes", each.nodes, each.place, "TF_CONFIG") for each in clusters[:1] if each.nodes]
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CODE if code is not None else Role.LAUNCH,
        document=document,
        facts=(*facts, *(_facts(code) if code is not None else ())),
        extra={"clusters": tuple(clusters), "code": code},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def _facts(code: Code) -> Iterator[Fact]:
    for call in code.called(*MIRRORED)[:1]:
        yield fact("zero", 0, code.place(call), code.dotted(call.func).rpartition(".")[2])
    for call in code.called("set_global_policy")[:1]:
        policy = POLICIES.get(str(code.constant(keyword(call, "policy", 0))))
        if policy is not None:
            yield fact("precision", policy, code.place(call), "set_global_policy")
    optimizers = [
        call
        for call in code.called(*OPTIMIZERS)
        if code.dotted(call.func).startswith(("tensorflow.", "keras."))
    ]
    if len(optimizers) == 1:
        yield fact(
            "optimizer",
            code.dotted(optimizers[0].func).rpartition(".")[2],
            code.place(optimizers[0]),
            "optimizer",
        )
        rate = code.constant(keyword(optimizers[0], "learning_rate", 0))
        if isinstance(rate, float):
            yield fact("learning_rate", rate, code.place(optimizers[0]), "learning_rate")
        steps = code.count(keyword(optimizers[0], "gradient_accumulation_steps"))
        if steps is not None:
            yield fact("accumulation", steps, code.place(optimizers[0]), "gradient_accumulation_steps")
