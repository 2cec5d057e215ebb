"""Further ranks of one bench on this machine, as processes that this one starts and ends. Knows no torch."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 20.0


@contextmanager
def local_ranks(ranks: int, options: Sequence[str]) -> Iterator[None]:
    """This process as rank 0 of `ranks`; the others run `escala bench` with the options until it ends."""
    if ranks == 1:
        yield
        return
    launch, before = _launch(ranks), dict(os.environ)
    others = [_start(launch, rank, options) for rank in range(1, ranks)]
    os.environ.update(launch, RANK="0", LOCAL_RANK="0")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        for each in others:
            _end(each)


def _launch(ranks: int) -> Mapping[str, str]:
    """What every rank is told, with a port that is free now."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = str(free.getsockname()[1])
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return {"MASTER_ADDR": HOST, "MASTER_PORT": port, **size}


def _start(launch: Mapping[str, str], rank: int, options: Sequence[str]) -> subprocess.Popen[bytes]:
    own = {**os.environ, **launch, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    command = [sys.executable, "-m", "escala", "bench", *options]
    return subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a rank that has been told; end one that has not."""
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
