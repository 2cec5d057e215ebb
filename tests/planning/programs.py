"""What the ranks of a pipeline post and wait for in three packages, played event by event. Knows no escala.

Each program lists what one rank does. Messages posted together are waited for together; one begins when both
ends are posted, and nobody sends before the other has asked. Two opposite messages that both ranks posted
in one batch are an exchange. Sources: PyTorch 2.13, torch/distributed/pipelining/schedules.py (ScheduleGPipe,
Schedule1F1B); Megatron-LM, pipeline_parallel/schedules.py (1F1B without interleaving); DeepSpeed,
runtime/pipe/schedule.py (TrainSchedule).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class Message:
    """The result of one micro-batch, from a rank to a neighbour."""

    source: int
    to: int
    number: int


Batch = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Act:
    """Compute something, post messages, or wait for posted ones."""

    computes: str = ""
    posts: Batch = ()
    waits: Batch = ()


Program = Callable[[int, int, int], Iterator[Act]]


@dataclass(frozen=True, slots=True)
class Place:
    """One rank among the others: the messages that it may post; none where there is no neighbour."""

    rank: int
    ranks: int

    def _message(self, source: int, to: int, number: int) -> Batch:
        is_there = min(source, to) >= 0 and max(source, to) < self.ranks
        return (Message(source, to, number),) if is_there else ()

    def receive_forward(self, number: int) -> Batch:
        return self._message(self.rank - 1, self.rank, number)

    def send_forward(self, number: int) -> Batch:
        return self._message(self.rank, self.rank + 1, number)

    def receive_backward(self, number: int) -> Batch:
        return self._message(self.rank + 1, self.rank, number)

    def send_backward(self, number: int) -> Batch:
        return self._message(self.rank, self.rank - 1, number)


def together(*batches: Batch) -> Iterator[Act]:
    """Post all messages at once and wait for all of them."""
    every = tuple(message for batch in batches for message in batch)
    yield Act(posts=every)
    yield Act(waits=every)


def pytorch_gpipe(rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
    """Receives wait, sends are waited for after the last forward and after the last backward."""
    at, numbers = Place(rank, ranks), range(micro_batches)
    turns = (
        (FORWARD, at.receive_forward, at.send_forward),
        (BACKWARD, at.receive_backward, at.send_backward),
    )
    for kind, receive, send in turns:
        for number in numbers:
            yield from together(receive(number))
            yield Act(computes=kind)
            yield Act(posts=send(number))
        yield Act(waits=tuple(message for number in numbers for message in send(number)))


def pytorch_1f1b(rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
    """Sends of the warm-up and of the end are in flight; in between both directions are waited for."""
    at, ahead = Place(rank, ranks), min(micro_batches, ranks - rank)
    for number in range(ahead):
        yield from together(at.receive_forward(number))
        yield Act(computes=FORWARD)
        if number > 0:
            yield Act(waits=at.send_forward(number - 1))
        if number < ahead - 1:
            yield Act(posts=at.send_forward(number))
    for number in range(micro_batches - ahead):
        yield from together(at.send_forward(number + ahead - 1), at.receive_backward(number))
        yield Act(computes=BACKWARD)
        yield from together(at.send_backward(number), at.receive_forward(number + ahead))
        yield Act(computes=FORWARD)
    last = micro_batches - ahead
    yield from together(at.send_forward(micro_batches - 1), at.receive_backward(last))
    yield Act(computes=BACKWARD)
    yield Act(posts=at.send_backward(last))
    for number in range(last + 1, micro_batches):
        yield from together(at.receive_backward(number))
        yield Act(computes=BACKWARD)
        yield Act(waits=at.send_backward(number - 1))
        yield Act(posts=at.send_backward(number))
    yield Act(waits=at.send_backward(micro_batches - 1))


def megatron_1f1b(rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
    """Every send is waited for; between forward and backward together with what comes back."""
    at, ahead = Place(rank, ranks), min(micro_batches, ranks - rank - 1)
    for number in range(ahead):
        yield from together(at.receive_forward(number))
        yield Act(computes=FORWARD)
        yield from together(at.send_forward(number))
    steady = micro_batches - ahead
    if steady:
        yield from together(at.receive_forward(ahead))
    for number in range(steady):
        yield Act(computes=FORWARD)
        yield from together(at.send_forward(number + ahead), at.receive_backward(number))
        yield Act(computes=BACKWARD)
        is_last = number == steady - 1
        yield from together(
            at.send_backward(number), () if is_last else at.receive_forward(number + ahead + 1)
        )
    for number in range(steady, micro_batches):
        yield from together(at.receive_backward(number))
        yield Act(computes=BACKWARD)
        yield from together(at.send_backward(number))


def deepspeed_1f1b(rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
    """Ranks take turns: even ones forward while odd ones go backward; each message is waited for alone."""
    at, before = Place(rank, ranks), -1
    for step in range(2 * (micro_batches + ranks - 1)):
        goes_forward = step % 2 == rank % 2
        number = (step - rank) // 2 if goes_forward else (step - (2 * ranks - 1 - rank)) // 2
        now, earlier = 0 <= number < micro_batches, 0 <= before < micro_batches
        if goes_forward:
            yield from together(at.receive_forward(number) if now else ())
            yield from together(at.send_backward(before) if earlier else ())
        else:
            yield from together(at.send_forward(before) if earlier else ())
            yield from together(at.receive_backward(number) if now else ())
        if now:
            yield Act(computes=FORWARD if goes_forward else BACKWARD)
        before = number


class Played:
    """All ranks at once: each goes on until it waits for a message that the other end has not posted."""

    def __init__(self, programs: Sequence[list[Act]], send_s: float, exchange_s: float) -> None:
        self.programs, self.send_s, self.exchange_s = programs, send_s, exchange_s
        self.now_s = [0.0] * len(programs)
        self.posted: dict[tuple[Message, int], tuple[float, Batch]] = {}

    def seconds(self, kinds: dict[str, Sequence[float]]) -> float:
        """Until the last rank has done everything; `kinds` has the seconds of each kind on every rank."""
        places = [0] * len(self.programs)
        goes_on = True
        while goes_on:
            goes_on = False
            for rank, program in enumerate(self.programs):
                while places[rank] < len(program) and self._does(rank, program[places[rank]], kinds):
                    places[rank] += 1
                    goes_on = True
        assert places == [len(program) for program in self.programs], "the ranks block each other"
        return max(self.now_s)

    def _does(self, rank: int, act: Act, kinds: dict[str, Sequence[float]]) -> bool:
        ends_s = [self._end_s(message) for message in act.waits]
        if None in ends_s:
            return False
        self.now_s[rank] = max([self.now_s[rank], *(end for end in ends_s if end is not None)])
        self.now_s[rank] += kinds[act.computes][rank] if act.computes else 0.0
        self.posted.update({(message, rank): (self.now_s[rank], act.posts) for message in act.posts})
        return True

    def _end_s(self, message: Message) -> float | None:
        ends = self.posted.get((message, message.source)), self.posted.get((message, message.to))
        if ends[0] is None or ends[1] is None:
            return None
        (sent_s, own), (asked_s, others) = ends
        back = {each for each in own if each.source == message.to}
        return max(sent_s, asked_s) + (self.exchange_s if back & set(others) else self.send_s)


def step_s(
    program: Program,
    micro_batches: int,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    send_s: float,
    exchange_s: float,
) -> float:
    """Seconds of all micro-batches under a program, with the seconds of a micro-batch on each rank."""
    ranks = len(forward_s)
    programs = [list(program(rank, ranks, micro_batches)) for rank in range(ranks)]
    return Played(programs, send_s, exchange_s).seconds({FORWARD: forward_s, BACKWARD: backward_s})
