"""What ranks do in the tests of starting them: small works that end in every way."""

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from escala.errors import InvalidInput
from escala.training.launch import Place


def note(folder: str, place: Place, **more: object) -> None:
    path = Path(folder) / f"rank-{place.rank}-{place.restarts}.json"
    names = ("OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR", "TORCH_FR_BUFFER_SIZE")
    path.write_text(json.dumps({**{name: os.environ.get(name) for name in names}, **more}))


def fails_once(place: Place, arguments: Sequence[str]) -> int:
    (folder,) = arguments
    note(folder, place, ranks=place.ranks, port=place.port)
    print(f"rank {place.rank} speaks")
    if place.rank == 1 and place.restarts == 0:
        raise ValueError("a fault that passes\nwith a second line")
    return 0


def fails_in_step_7(place: Place, arguments: Sequence[str]) -> int:
    note(arguments[0], place)
    error = ValueError("a fault that stays")
    error.add_note("step 7")  # as the watchdog of a session does
    raise error


def is_told_wrong(place: Place, arguments: Sequence[str]) -> int:
    note(arguments[0], place)
    raise InvalidInput("tp=6 does not divide 32 heads; choose 1, 2, 4, 8, 16 or 32")


def saves_when_asked(place: Place, arguments: Sequence[str]) -> int:
    (folder,) = arguments
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    note(folder, place)
    while not asked:
        time.sleep(0.05)
    time.sleep(0.5)
    (Path(folder) / f"saved-{place.rank}").touch()
    return 130
