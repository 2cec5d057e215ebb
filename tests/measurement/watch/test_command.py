"""A watched command behaves as if nobody watched: output, input, exit code, signals, terminal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PYTHON = sys.executable
BYTES = b"\xff\xfe caf\xe9 \x00\x1b[31m half\rover\r\n no end"
TRAP = """
import signal, sys, time
count = 0
def heard(number, frame):
    global count
    count += 1
signal.signal(signal.{name}, heard)
print("ready", flush=True)
end = time.monotonic() + 30
while not count and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3)
print("heard", count, flush=True)
sys.exit(7)
"""


def read_until(process: "subprocess.Popen[bytes]", wanted: bytes) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline()) and wanted not in line:
        pass
    assert wanted in line


def test_output_of_both_streams_and_the_exit_code_go_through(watch):
    program = f"import os, sys; os.write(1, {BYTES!r}); os.write(2, {BYTES!r}); sys.exit(3)"

    found = watch("--", PYTHON, "-c", program)
    assert found.returncode == 3
    assert found.stdout == BYTES
    assert found.stderr.startswith(BYTES)


def test_streams_that_are_one_keep_their_order(watch):
    program = "import os\nfor i in range(300): os.write(1 + i % 2, b'%d\\n' % i)"

    found = watch("--", PYTHON, "-c", program, stderr=subprocess.STDOUT)
    lines = found.stdout.splitlines()
    assert lines[:300] == [b"%d" % i for i in range(300)]


def test_input_goes_through(watch):
    assert watch("--", "cat", given=b"one\ntwo").stdout == b"one\ntwo"


def test_options_of_the_command_need_no_dashes_before_it(watch):
    assert watch("sh", "-c", "echo $0", "--json").stdout == b"--json\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-command-1", "there is no command 'no-such-command-1' that can be run"),
        ("/tmp", "there is no command '/tmp' that can be run"),
        ("./broken", "cannot be run (exec format error)"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_leaves_nothing(watch, tmp_path: Path, command: str, said: str):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)

    found = watch("--", command)
    assert (found.returncode, found.stdout) == (2, b"")
    assert said in found.stderr.decode()
    assert found.stderr.count(b"\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_reaches_the_command_once(start, name: str):
    process = start("--", PYTHON, "-c", TRAP.format(name=name))
    read_until(process, b"ready")
    os.kill(process.pid, getattr(signal, name))

    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"heard 1\n", 7)


def test_a_command_that_a_signal_ends_has_the_exit_code_of_a_shell(start, tmp_path: Path):
    process = start("--", PYTHON, "-c", "import time; print('ready', flush=True); time.sleep(60)")
    read_until(process, b"ready")
    os.kill(process.pid, signal.SIGTERM)

    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "watch" / "run.json").exists()


def test_a_command_that_ignores_the_signal_goes_on(start):
    program = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(0.5); print('done')"
    )
    process = start("--", PYTHON, "-c", program)
    read_until(process, b"ready")
    os.kill(process.pid, signal.SIGINT)

    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"done\n", 0)


def test_a_reader_that_goes_away_ends_the_command_as_without_watch(start):
    process = start("--", PYTHON, "-c", "while True: print('x' * 1000)", stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()

    assert process.wait(60) in (1, 128 + signal.SIGPIPE)  # Python makes an error of the signal


def test_output_that_a_process_left_behind_holds_is_left_with_a_signal(start):
    process = start("--", "sh", "-c", "sleep 60 & echo started; exit 5")
    read_until(process, b"started")
    time.sleep(1)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)

    assert process.wait(60) == 5


def test_a_terminal_stays_one_and_its_ctrl_c_comes_once(terminal):
    program = "import os\nprint([os.isatty(i) for i in range(3)], os.get_terminal_size().columns)\n"
    shown = terminal(program + TRAP.format(name="SIGINT"))

    shown.until(b"ready\r\n")  # one carriage return, which the terminal itself adds
    os.write(shown.place, b"\x03")
    shown.until(b"Files")
    assert b"[True, True, True] 123\r\n" in shown.shown
    assert b"heard 1\r\n" in shown.shown
    assert shown.code() == 7


def test_a_new_size_of_the_terminal_reaches_the_command(terminal):
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(1).columns, flush=True))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 30\nwhile time.monotonic() < end: time.sleep(0.1)"
    )
    shown = terminal(program)
    shown.until(b"ready")
    shown.resize(77)

    shown.until(b"77\r\n")
    os.kill(shown.process.pid, signal.SIGTERM)
    shown.until(b"Files")
    assert shown.code() == 128 + signal.SIGTERM


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_a_signal_at_any_moment_of_the_start_ends_both(start, after_s: float):
    process = start("--", PYTHON, "-c", "import time; time.sleep(60)")
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGTERM)

    # before there is a command, the signal ends escala itself
    assert process.wait(60) in (-signal.SIGTERM, 128 + signal.SIGTERM)
