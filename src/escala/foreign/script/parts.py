"""The parts of a training program that facts and rules ask for: its loop, its loaders, how it is spread."""

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.script.code import Code, Loop, keyword, texts, words

EVALUATION: Final = re.compile(r"val|test|eval|dev|infer|pred", re.IGNORECASE)
RANK: Final = re.compile(r"rank|main_process|master|is_main|chief", re.IGNORECASE)
UNSYNCHRONISED: Final = frozenset(
    (
        "no_sync",
        "require_backward_grad_sync",
        "set_requires_gradient_sync",
        "set_is_last_backward",
        "accumulate",
    )
)
"""Names by which a program says that gradients of a micro-batch wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """How many micro-batches make a step, where the program says it, and the loop over them."""

    loop: Loop
    place: ast.AST
    count: int | None


class Program(Code):
    """A training program."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.ddp = self.called("DistributedDataParallel")
        self.fsdp1 = self.called("FullyShardedDataParallel")
        self.fsdp2 = self.called("fully_shard")
        self.accelerator = self.called("Accelerator")
        self.backward = [call for call in self.called("backward") if isinstance(call.func, ast.Attribute)]

    @property
    def is_spread(self) -> bool:
        """Whether several processes train together, each with its own wrapper or group."""
        return bool(self.ddp or self.fsdp1 or self.fsdp2 or self.called("init_process_group"))

    @property
    def is_handed_over(self) -> bool:
        """Whether another library spreads it: Accelerate, DeepSpeed, Lightning, a trainer."""
        packages = ("accelerate", "deepspeed", "lightning", "pytorch_lightning", "ignite", "horovod")
        return any(map(self.imports, packages)) or bool(self.called("Trainer", "SFTTrainer"))

    @cached_property
    def loops(self) -> list[Loop]:
        """The innermost loops in which gradients are computed."""
        found = [self.loop(call) for call in self.backward]
        return list(dict.fromkeys(loop for loop in found if loop is not None))

    @cached_property
    def loaders(self) -> list[ast.Call]:
        """The calls that make loaders of training data."""
        return [
            call
            for call in self.called("DataLoader")
            if self.dotted(call.func).startswith(("torch.", "DataLoader")) and not self._is_evaluating(call)
        ]

    def _is_evaluating(self, call: ast.Call) -> bool:
        names: set[str] = set()
        for each in self.around(call):
            if isinstance(each, ast.Assign):
                names |= set().union(*map(words, each.targets))
            if isinstance(each, ast.FunctionDef):
                names.add(each.name)
        names |= words(call.args[0]) if call.args else set()
        return any(EVALUATION.search(name) for name in names)

    @cached_property
    def accumulation(self) -> Accumulation | None:
        """The loop that adds up micro-batches before it steps."""
        for loop in self.loops:
            found = self._by_remainder(loop) or self._by_inner_loop(loop)
            if found is not None:
                return found
        return None

    def _by_remainder(self, loop: Loop) -> Accumulation | None:
        """A step under a condition on a remainder: if (i + 1) % steps == 0."""
        for each in ast.walk(loop):
            if not isinstance(each, ast.If) or not _steps(each.body):
                continue
            for inside in ast.walk(each.test):
                if isinstance(inside, ast.BinOp) and isinstance(inside.op, ast.Mod):
                    return Accumulation(loop=loop, place=each, count=self.count(inside.right))
        return None

    def _by_inner_loop(self, loop: Loop) -> Accumulation | None:
        """A loop over range(steps) inside the loop that steps."""
        outer = self.loop(loop)
        call = loop.iter if isinstance(loop, ast.For) else None
        if outer is None or not isinstance(call, ast.Call) or self.dotted(call.func) != "range":
            return None
        if _steps(loop.body) or not _steps(outer.body):
            return None
        return Accumulation(loop=loop, place=loop, count=self.count(call.args[0]) if call.args else None)

    def is_on_one_rank(self, node: ast.AST) -> bool:
        """Whether a node stands under a condition on the rank, or after a return of the other ranks."""
        below = node
        for each in self.around(node):
            if isinstance(each, ast.If | ast.IfExp) and _is_about_rank(each.test):
                return True
            body = getattr(each, "body", None)
            if isinstance(body, list) and below in body and any(map(_returns, body[: body.index(below)])):
                return True
            below = each
        return False

    def dtypes(self) -> dict[str, ast.AST]:
        """The number formats that autocast or a policy of mixed precision is told, with where."""
        found: dict[str, ast.AST] = {}
        for call in self.called("autocast"):
            given = keyword(call, "dtype")
            self._format(given if given is not None else keyword(call, "dtype", 1), found)
        for call in self.called("MixedPrecision", "MixedPrecisionPolicy"):
            self._format(keyword(call, "param_dtype", 0), found)
        return found

    def _format(self, given: ast.AST | None, found: dict[str, ast.AST]) -> None:
        meant = self.meant(given)
        name = self.dotted(meant).rpartition(".")[2] if isinstance(meant, ast.Attribute) else ""
        kind = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(name)
        if kind is not None and given is not None:
            found.setdefault(kind, given)


def _steps(body: list[ast.stmt]) -> bool:
    """Whether an optimizer takes a step in it."""
    for statement in body:
        for each in ast.walk(statement):
            if (
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Attribute)
                and each.func.attr == "step"
            ):
                return True
    return False


def _is_about_rank(test: ast.AST) -> bool:
    return any(RANK.search(word) for word in words(test) | texts(test))


def _returns(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and _is_about_rank(statement.test)
        and any(isinstance(each, ast.Return | ast.Continue) for each in statement.body)
    )
