"""Carries packets between hosts and holds each of them back: `relay.py SECONDS CARD HOLDER...`.

Opens a TUN card in the network namespace of every holder and delivers by the last byte of the address. For
kernels without netem. Bandwidth is the affair of the card's queue, not of this program.
"""

import ctypes
import fcntl
import heapq
import os
import selectors
import struct
import sys
import time
from typing import Final

TUNSETIFF: Final = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
FIRST_ADDRESS: Final = 10
AT_ONCE: Final = 64
MOST_BYTES: Final = 65536
IDLE_S: Final = 0.05


def main(delay_s: float, card: str, holders: list[int]) -> None:
    """Relay until the process is ended."""
    cards = [opened(holder, card) for holder in holders]
    selector = selectors.DefaultSelector()
    for each in cards:
        selector.register(each, selectors.EVENT_READ)
    print("up", flush=True)
    under_way: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        wait_s = under_way[0][0] - time.monotonic() if under_way else IDLE_S
        for key, _ in selector.select(max(wait_s, 0.0)):
            for packet in received(key.fd):
                number += 1
                due_s = time.monotonic() + delay_s
                heapq.heappush(under_way, (due_s, number, packet[19] - FIRST_ADDRESS, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, host, packet = heapq.heappop(under_way)
            if 0 <= host < len(cards):
                os.write(cards[host], packet)


def received(card: int) -> list[bytes]:
    """Packets of IPv4 that wait at a card."""
    found = []
    for _ in range(AT_ONCE):
        try:
            packet = os.read(card, MOST_BYTES)
        except BlockingIOError:
            break
        if packet[0] >> 4 == 4:
            found.append(packet)
    return found


def opened(holder: int, card: str) -> int:
    """A TUN card in the namespace of a process; this process stays where it is."""
    library = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
    try:
        if library.setns(there, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace of {holder}")
        opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(opened, TUNSETIFF, struct.pack("16sH", card.encode(), IFF_TUN | IFF_NO_PI))
    finally:
        library.setns(home, 0)
        os.close(home)
        os.close(there)
    return opened


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], [int(holder) for holder in sys.argv[3:]])
