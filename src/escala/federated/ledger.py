"""Every message of a run with its bytes: one JSON line each. Knows files, nothing of what a message says."""

from pathlib import Path

import msgspec


class Letter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message: whose, when, which way (down to a client, up from it), bytes, and what became of it.

    `payload_bytes` are those of its arrays as NumPy files, `total_bytes` those of all that Flower carries for
    it, without HTTP and TLS. `outcome` is `sent`, `counted`, or the reason why it did not count.
    """

    round: int
    client: int
    kind: str
    way: str
    payload_bytes: int
    total_bytes: int
    outcome: str


class Ledger:
    """Adds up the bytes of a round, and writes each message down where a file is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._letters: list[Letter] = []

    def add(self, letter: Letter) -> None:
        """One more message."""
        self._letters.append(letter)

    def payload_bytes(self, way: str) -> int:
        """Bytes of arrays that went this way since the last close."""
        return sum(each.payload_bytes for each in self._letters if each.way == way)

    def total_bytes(self, way: str) -> int:
        """Bytes of whole messages that went this way since the last close."""
        return sum(each.total_bytes for each in self._letters if each.way == way)

    def close(self) -> None:
        """Write down the messages of a round that is over, and begin anew."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in self._letters))
        self._letters = []


def read_ledger(path: Path) -> list[Letter]:
    """All messages of a run."""
    return [msgspec.json.decode(line, type=Letter) for line in path.read_bytes().splitlines()]
