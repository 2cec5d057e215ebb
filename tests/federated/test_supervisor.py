"""Programs are started again when they end, and all end together with what they started."""

import subprocess
import sys
import time

import pytest

pytest.importorskip("psutil")
import psutil

from escala.federated.supervisor import Listener, Program, ProgramEnded, Supervisor

ENDLESS = "import time; time.sleep(600)"
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def program(tmp_path, script, name="one"):
    return Program(name=name, command=[sys.executable, "-c", script], log=tmp_path / name, environment={})


def until(claim, most_s=20.0):
    end_s = time.monotonic() + most_s
    while not claim():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_program_that_was_killed_is_started_again(tmp_path):
    told = []
    supervisor = Supervisor(told.append)
    supervisor.start(program(tmp_path, ENDLESS))
    first = supervisor.pid("one")
    try:
        psutil.Process(first).kill()
        until(lambda: supervisor.check() == ["one"])

        assert supervisor.pid("one") != first
        assert psutil.pid_exists(supervisor.pid("one"))
        assert told == ["one"]
    finally:
        supervisor.stop()


def test_a_program_that_ends_again_and_again_is_an_error_with_its_last_words(tmp_path):
    supervisor = Supervisor(lambda name: None, restarts=1)
    supervisor.start(program(tmp_path, "raise SystemExit('no such certificate')"))
    try:
        with pytest.raises(ProgramEnded, match=r"one ended 2 times.*no such certificate"):
            until(lambda: supervisor.check() == "never")
    finally:
        supervisor.stop()


def test_stopping_ends_what_a_program_started_in_a_session_of_its_own(tmp_path):
    supervisor = Supervisor(lambda name: None)
    supervisor.start(program(tmp_path, WITH_CHILD))
    until(lambda: (tmp_path / "one").read_text().strip().isdecimal())
    child = int((tmp_path / "one").read_text())

    supervisor.stop()

    until(lambda: not psutil.pid_exists(child))


def test_programs_end_with_a_supervisor_that_was_killed(tmp_path):
    script = tmp_path / "supervise.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from escala.federated.supervisor import Program, Supervisor\n"
        "supervisor = Supervisor(lambda name: None)\n"
        f"command = [sys.executable, '-c', {ENDLESS!r}]\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "supervisor.start(Program(name='one', command=command, log=log, environment={}))\n"
        "print(supervisor.pid('one'), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as started:
        child = int(started.stdout.readline())
        assert psutil.pid_exists(child)

        started.kill()

    until(lambda: not psutil.pid_exists(child))


def test_words_in_a_log_are_heard_once_each_time_that_they_are_said(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"no room\n")
    listener = Listener(log)
    assert not listener.hears(b"no room")  # said before

    for said, is_heard in (
        (b"all well, no ro", False),
        (b"om\n", True),
        (b"all well\n", False),
        (b"no room", True),
    ):
        with log.open("ab") as file:
            file.write(said)
        assert listener.hears(b"no room") == is_heard
        assert not listener.hears(b"no room")
