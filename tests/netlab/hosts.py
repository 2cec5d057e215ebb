"""Hosts on one machine: network namespaces with limited bandwidth, joined by a switch or by a slow relay.

Nothing has a name on the machine and nothing outlives its starter: a host is a network namespace that a
sleeping process holds, and the kernel ends that process with its parent, also after SIGKILL. So several labs
stand side by side and none needs to be cleaned up. Needs root on Linux, iproute2 and util-linux.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOOLS: Final = ("ip", "tc", "unshare", "nsenter", "setpriv", "taskset")
PORT: Final = 29500
CARD: Final = "eth0"
NET: Final = 0x40000000
"""CLONE_NEWNET, see setns(2)."""
PATIENCE_S: Final = 10.0
BURST_BYTES: Final = 16 * 1024
"""What a card lets through at full speed after a pause: far below the messages that are timed."""
QUEUE: Final = "400ms"
TCP: Final = ("tcp_slow_start_after_idle=0", f"tcp_limit_output_bytes={32 * 1024}")
"""Connections keep their window over pauses, as training nodes are set; and acknowledgements do not wait
behind a megabyte of data of their own host, which fair queues, not in every kernel, see to elsewhere."""
RELAY: Final = Path(__file__).with_name("relay.py")
MORTAL: Final = ("setpriv", "--pdeathsig", "KILL")


class LabError(Exception):
    """A host or a program in it failed; the message says which, with its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Hosts that stand; the process of each holds its namespace."""

    holders: tuple[int, ...]

    def run(self, command: Sequence[str], folder: Path, patience_s: float) -> None:
        """The same program on every host at once, as the ranks of one launch; output in folder/rank-N.log."""
        with ExitStack() as stack:
            every = [self._start(rank, command, folder, stack) for rank in range(len(self.holders))]
            codes = _waited(every, time.monotonic() + patience_s)
        for rank, code in enumerate(codes):
            if code != 0 and (code is not None or not any(codes)):
                last = (folder / f"rank-{rank}.log").read_text(errors="replace")[-2000:]
                raise LabError(f"rank {rank} {'is late' if code is None else f'ended with {code}'}:\n{last}")

    def _start(
        self, rank: int, command: Sequence[str], folder: Path, stack: ExitStack
    ) -> "subprocess.Popen[bytes]":
        log = stack.enter_context((folder / f"rank-{rank}.log").open("wb"))
        core = sorted(os.sched_getaffinity(0))
        pinned = ("taskset", "-c", str(core[rank % len(core)]))
        inside = (*MORTAL, "nsenter", "-t", str(self.holders[rank]), "-n", *pinned, *command)
        process = subprocess.Popen(
            inside, env=launch(rank, len(self.holders)), stdout=log, stderr=log, cwd=folder
        )
        stack.callback(_end, process)
        return process


def _waited(every: Sequence["subprocess.Popen[bytes]"], deadline_s: float) -> list[int | None]:
    """Exit codes once all have ended, one has failed, or time is up; None for those that still run."""
    while True:
        codes = [each.poll() for each in every]
        if None not in codes or any(codes) or time.monotonic() > deadline_s:
            return codes
        time.sleep(0.05)


def launch(rank: int, ranks: int) -> dict[str, str]:
    """The environment of one rank, as a launcher on that host would set it."""
    own: Mapping[str, str] = {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": address(0),
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": CARD,
        "OMP_NUM_THREADS": "1",
    }
    return {**os.environ, **own}


def address(host: int) -> str:
    """The address of a host in its lab; every lab has the same."""
    return f"10.88.0.{10 + host}"


def missing(*, latency: bool = False) -> str | None:
    """Why no lab can stand here; None when one can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    if latency and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "no /dev/net/tun, which the relay that delays packets needs"
    try:
        with lab(1, bytes_per_s=1e6):
            return None
    except LabError as error:
        return f"no namespaces or no tbf in this kernel: {error}"


@contextmanager
def lab(hosts: int, *, bytes_per_s: float, delay_s: float = 0.0) -> Iterator[Lab]:
    """Hosts whose cards send at so many bytes a second, each packet under way for `delay_s`."""
    with ExitStack() as stack:
        holders = tuple(_holder(stack) for _ in range(hosts))
        if delay_s:
            _relay(stack, holders, delay_s)
        else:
            _switch(stack, holders)
        for host, holder in enumerate(holders):
            _card(holder, host, bytes_per_s)
        yield Lab(holders=holders)


@contextmanager
def star(bytes_per_s: Sequence[float]) -> Iterator[tuple[Lab, int]]:
    """Hosts that each send and receive at their own rate, and the process that holds their switch."""
    with ExitStack() as stack:
        holders = tuple(_holder(stack) for _ in bytes_per_s)
        switch = _switch(stack, holders)
        for host, (holder, rate) in enumerate(zip(holders, bytes_per_s, strict=True)):
            _card(holder, host, rate)
            _limit(switch, f"port{host}", rate)
        yield Lab(holders=holders), switch


def passed_bytes(holder: int, card: str) -> int:
    """What a card has sent so far, headers of every packet counted."""
    shown = _in(holder, f"tc -s -j qdisc show dev {card}")
    return int(json.loads(shown)[0]["bytes"])


@contextmanager
def inside(holder: int) -> Iterator[None]:
    """This thread, and what it starts, on a host."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/proc/{holder}/ns/net") as other:
        if libc.setns(other.fileno(), NET):
            raise LabError(f"no way into a host: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.setns(own.fileno(), NET)


def _holder(stack: ExitStack) -> int:
    """A process that sleeps in a network namespace of its own."""
    process = subprocess.Popen([*MORTAL, "unshare", "--net", "sleep", "infinity"], stderr=subprocess.PIPE)
    stack.callback(_end, process)
    own, deadline_s = os.readlink("/proc/self/ns/net"), time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if os.readlink(f"/proc/{process.pid}/ns/net") != own:
            return process.pid
        time.sleep(0.002)
    assert process.stderr is not None
    said = process.stderr.read().decode() if process.poll() is not None else "it did not start in time"
    raise LabError(f"no network namespace: {said.strip()}")


def _switch(stack: ExitStack, holders: Sequence[int]) -> int:
    """A bridge in a namespace of its own, with a cable to each host."""
    switch = _holder(stack)
    _in(switch, "ip link add bridge type bridge")
    _in(switch, "ip link set bridge up")
    for host, holder in enumerate(holders):
        _in(switch, f"ip link add port{host} type veth peer name {CARD} netns {holder}")
        _in(switch, f"ip link set port{host} master bridge up")
    return switch


def _relay(stack: ExitStack, holders: Sequence[int], delay_s: float) -> None:
    """A program that carries packets between the hosts and holds each of them back."""
    command = [*MORTAL, sys.executable, str(RELAY), str(delay_s), CARD, *map(str, holders)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stack.callback(_end, process)
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdout.readline().strip() != b"up":
        raise LabError(f"the relay did not start: {process.stderr.read().decode()[-500:]}")


def _card(holder: int, host: int, bytes_per_s: float) -> None:
    """Address and speed of a host's card."""
    _in(holder, f"ip addr add {address(host)}/24 dev {CARD}")
    _in(holder, "ip link set lo up")
    _in(holder, f"ip link set {CARD} up")
    _limit(holder, CARD, bytes_per_s)
    for setting in TCP:
        _in(holder, f"sysctl -qw net.ipv4.{setting}")


def _limit(holder: int, card: str, bytes_per_s: float) -> None:
    """So fast a card sends from now on."""
    bits = round(8 * bytes_per_s)
    _in(holder, f"tc qdisc add dev {card} root tbf rate {bits}bit burst {BURST_BYTES} latency {QUEUE}")


def _in(holder: int, command: str) -> str:
    """One command in the namespace of a host; gives what it said."""
    done = subprocess.run(
        ["nsenter", "-t", str(holder), "-n", *command.split()], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"`{command}`: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
