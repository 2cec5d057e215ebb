"""The lab itself: what its cards let through, that labs do not meet, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netlab.cases import WIDE, Case, Shape, cases
from netlab.hosts import Lab, LabError, address, lab, missing

TESTS = Path(__file__).parents[1]
# Host 0 sends a megabyte to host 1, which writes how many seconds it took from the first byte to the last.
TALK = f"""
import os, socket, time
if os.environ["RANK"] == "1":
    with socket.create_server(("", 4000)) as door:
        with door.accept()[0] as line:
            line.recv(1); began = time.monotonic(); line.sendall(b"x")
            while line.recv(1 << 16): pass
            print(time.monotonic() - began)
else:
    while True:
        try: line = socket.create_connection(("{address(1)}", 4000), 5)
        except ConnectionRefusedError: time.sleep(0.05)
        else: break
    line.sendall(b"x"); line.recv(1); line.sendall(bytes(1_000_000)); line.close()
"""


@pytest.fixture(autouse=True)
def _possible() -> None:
    why = missing()
    if why:
        pytest.skip(why)


def talk_s(hosts: Lab, folder: Path) -> float:
    hosts.run([sys.executable, "-c", TALK], folder, 30.0)
    return float((folder / "rank-1.log").read_text())


def test_a_card_sends_no_faster_than_it_may(tmp_path: Path):
    with lab(2, bytes_per_s=2e6) as hosts:
        # a megabyte at 2 MB/s, less a burst of 16 KiB: at least 0.49 s
        assert talk_s(hosts, tmp_path) >= 0.49


def test_two_labs_stand_side_by_side_with_the_same_addresses(tmp_path: Path):
    with lab(2, bytes_per_s=1e7) as one, lab(2, bytes_per_s=1e7) as other:
        assert talk_s(one, tmp_path) > 0
        assert talk_s(other, tmp_path) > 0


def test_the_relay_holds_packets_back(tmp_path: Path):
    why = missing(latency=True)
    if why:
        pytest.skip(why)
    with lab(2, bytes_per_s=1e7, delay_s=0.05) as hosts:
        # the answer to the first byte goes one way, the data the other: two delays at least
        assert talk_s(hosts, tmp_path) >= 0.1


def test_a_rank_that_fails_is_named_with_its_last_words(tmp_path: Path):
    program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit('lost'); time.sleep(60)"
    with lab(2, bytes_per_s=1e7) as hosts, pytest.raises(LabError) as error:
        hosts.run([sys.executable, "-c", program], tmp_path, 30.0)

    assert "rank 1 ended with 1:\nlost" in str(error.value)


def holders_of(parent: int) -> Iterator[int]:
    """Processes that this one has started."""
    yield from map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind_however_a_lab_ends(end: signal.Signals):
    program = (
        "import time; from netlab.hosts import lab\n"
        "with lab(2, bytes_per_s=1e6):\n"
        "    print('up', flush=True)\n"
        "    while True: time.sleep(0.1)"  # a signal just before a long sleep would not end it
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", program]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=quiet) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            held = list(holders_of(process.pid))
            process.send_signal(end)
            process.wait(10)
        finally:
            process.kill()  # leaving the block waits for its end

    assert len(held) == 3  # two hosts and the switch
    deadline_s = time.monotonic() + 5
    while any(is_alive(each) for each in held) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not any(is_alive(each) for each in held)


def is_alive(process: int) -> bool:
    """Whether a process is there and more than an entry that nobody has read yet."""
    file = Path(f"/proc/{process}/stat")
    try:
        return file.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.optional
def test_the_decoder_has_the_parameters_of_its_description():
    torch = pytest.importorskip("torch", reason="the decoder is PyTorch")
    from escala.catalog.families import network_from_config
    from escala.model.parameters import network_parameters
    from netlab.decoder import Decoder

    shape = Shape(**WIDE)
    with torch.device("meta"):
        parameters = sum(each.numel() for each in Decoder(shape).parameters())

    assert parameters == network_parameters(network_from_config(shape.config(), "decoder", "a test")).total


def test_every_way_to_split_is_a_plan_of_as_many_devices():
    found: list[Case] = cases(4)

    assert {case.way for case in found} == {"ddp", "fsdp", "hsdp", "tp", "sp", "gpipe", "1f1b"}
    assert {case.plan.devices for case in found} == {4}
    assert "hsdp" not in {case.way for case in cases(2)}
