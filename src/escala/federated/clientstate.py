"""What a client keeps between rounds, so that work that is asked for twice begins twice from the same state.

A Flower mod over `Context.state`. Flower keeps that in the memory of a SuperNode; where the node's settings
name a folder (`state-dir`), it is also kept there, and outlives the node. Knows nothing of what is kept.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput
from escala.federated.flower import ConfigRecord, Context, Message, RecordDict, packed, unpacked
from escala.wholefile import write_whole

TURN: Final = "turn"
BEFORE: Final = "escala-before"
STATE_DIR: Final = "state-dir"
RUN: Final = "run"
PROOF_BYTES: Final = 32


def keep_state(message: Message, context: Context, handle: Callable[[Message, Context], Message]) -> Message:
    """Restore what the client kept before this turn, handle the message, keep what it keeps now."""
    turn = message.content.config_records.get("config", {}).get(TURN)
    if not isinstance(turn, int):
        return handle(message, context)
    path = _path(context)
    if path is not None and path.exists():
        # a SuperNode hands out the next work without waiting for what the last one kept
        context.state = max(context.state, _read(path), key=_last_turn)
    context.state = _before(context.state, turn)
    begun = packed(context.state)
    reply = handle(message, context)
    context.state[BEFORE] = ConfigRecord({TURN: turn, "state": begun})
    if path is not None:
        _write(path, context.state)
    return reply


def _before(state: RecordDict, turn: int) -> RecordDict:
    """The state as it was before this turn; turns that came later are undone."""
    kept = state.config_records.get(BEFORE)
    if kept is None:
        return state
    if int(kept[TURN]) >= turn:
        return unpacked(bytes(kept["state"]))
    return RecordDict({name: each for name, each in state.items() if name != BEFORE})


def _last_turn(state: RecordDict) -> int:
    """The turn after which this state was kept; -1 for none."""
    kept = state.config_records.get(BEFORE)
    return -1 if kept is None else int(kept[TURN])


def _path(context: Context) -> Path | None:
    folder = context.node_config.get(STATE_DIR)
    if folder is None:
        return None
    Path(str(folder)).mkdir(parents=True, exist_ok=True)
    return (
        Path(str(folder))
        / f"{context.run_config.get(RUN, 'run')}-{context.node_config['partition-id']}.state"
    )


def _write(path: Path, state: RecordDict) -> None:
    content = packed(state)
    write_whole(path, hashlib.sha256(content).digest() + content)


def _read(path: Path) -> RecordDict:
    written = path.read_bytes()
    proof, content = written[:PROOF_BYTES], written[PROOF_BYTES:]
    if hashlib.sha256(content).digest() != proof:
        raise InvalidInput(f"{path} is no state of a client; delete it, the client begins anew")
    return unpacked(content)
