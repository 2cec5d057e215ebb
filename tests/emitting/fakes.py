"""Targets as they might be: one of data parallelism, one of FSDP, one of Megatron's kind, one scheduler."""

from typing import Any

from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target, header
from escala.model.plan import Compile, ContextKind, Recompute, Schedule

WHOLE = (Recompute.NONE, Recompute.FULL)


class Fake:
    """A writer that writes its header."""

    def __init__(self, name: str, *, wraps: bool = False, engine: str = "hf-trainer", **able: Any) -> None:
        self.TARGET = Target(
            name=name,
            title=name.upper(),
            version="1.0",
            abilities=Abilities(**able),
            launch="run --ranks {devices}",
            launch_nodes="run --nodes {nodes} --rank $NODE_RANK",
            page=name,
            wraps=wraps,
            engine=engine,
        )

    def write(self, order: Order) -> list[OutFile]:
        text = f"{header(self.TARGET, order)}{order.launch}\n"
        return [OutFile(name=f"{self.TARGET.name}.sh", text=text, is_executable=self.TARGET.wraps)]


PLAIN = Fake("plain")
SHARDING = Fake(
    "sharding",
    engine="pytorch",
    zero=(0, 3),
    hybrid=True,
    tp=8,
    sp=(True,),
    cp=ANY,
    cp_kinds=(ContextKind.ALL_GATHER,),
    recompute=WHOLE,
    compiles=(Compile.OFF, Compile.DEFAULT),
)
PIPED = Fake(
    "piped",
    zero=(0, 1),
    tp=ANY,
    sp=(False, True),
    pp=ANY,
    schedules=(Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
    ep=ANY,
    recompute=tuple(Recompute),
)
SCHEDULER = Fake("scheduler", wraps=True, zero=(0, 3))
FAKES = {each.TARGET.name: each for each in (PIPED, PLAIN, SCHEDULER, SHARDING)}
