"""rounds.jsonl as rounds: one JSON line each, in order. Knows the file, not what is in a round."""

from pathlib import Path
from typing import Final

import msgspec

from escala.errors import InvalidInput, one_line
from escala.federated.manifest import ROUNDS
from escala.federated.roundrecord import SCHEMA, Round
from escala.inputs import read_bytes

MOST_BYTES: Final = 2**31
HINT: Final = "a file of rounds is smaller; take part of it"


def read_rounds(path: str | Path) -> list[Round]:
    """The rounds of a file, or of the rounds.jsonl in a folder; the first fault is named with its line.

    A last line without its end is what a run that was cut off left, and no fault.
    """
    file = Path(path) / ROUNDS if Path(path).is_dir() else Path(path)
    *lines, last = read_bytes(file, MOST_BYTES, HINT).split(b"\n")
    if last.endswith(b"}"):  # whole all the same
        lines.append(last)
    decoder = msgspec.json.Decoder(Round)
    rounds: list[Round] = []
    for number, line in enumerate(lines, 1):
        rounds.append(_decoded(decoder, line, f"{file}: line {number}"))
        if len(rounds) > 1 and rounds[-1].round <= rounds[-2].round:
            raise InvalidInput(
                f"{file}: line {number} is round {rounds[-1].round}, after round {rounds[-2].round}; rounds"
                " have to rise, each once"
            )
    if not rounds:
        raise InvalidInput(f"{file} holds no round; give the rounds.jsonl of a run")
    return rounds


def _decoded(decoder: "msgspec.json.Decoder[Round]", line: bytes, place: str) -> Round:
    try:
        record = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{place} is no round ({one_line(str(error))}); give a rounds.jsonl") from None
    if record.schema != SCHEMA:
        raise InvalidInput(f"{place} is '{one_line(record.schema)}'; this escala reads '{SCHEMA}'")
    return record
