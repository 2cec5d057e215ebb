"""A real slurmctld with 16 nodes of 8 H100 that exist on paper only, from Debian's packages, without root.

The packages are fetched by apt-get and unpacked into a folder; where that fails, tests are skipped.
"""

import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

PACKAGES: Final = ("slurm-client", "slurmctld", "slurm-wlm-basic-plugins", "libmunge2")
NODES, GPUS, CORES, MEMORY_MB = 16, 8, 128, 2_000_000


@functools.cache
def root() -> Path:
    """The folder with Slurm's programs; the test is skipped where they cannot be had."""
    folder = Path(tempfile.gettempdir()) / f"escala-slurm-{os.getuid()}"
    if not (folder / "root/usr/bin/sbatch").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True, capture_output=True)
            for package in sorted(folder.glob("*.deb")):
                subprocess.run(["dpkg", "-x", package, folder / "root"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"Debian's packages of Slurm cannot be had here ({error})")
    return folder / "root"


def run(program: str, *arguments: str, conf: Path) -> subprocess.CompletedProcess[str]:
    """One of Slurm's programs."""
    command = [str(root() / "usr/bin" / program), *arguments]
    return subprocess.run(command, env=_environment(conf), capture_output=True, text=True, check=False)


def _environment(conf: Path) -> dict[str, str]:
    libraries = root() / "usr/lib/x86_64-linux-gnu"
    return {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/slurm-wlm",
        "SLURM_CONF": str(conf),
    }


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """The configuration of a cluster whose controller runs; its nodes answer nothing and start nothing."""
    conf = folder / "slurm.conf"
    conf.write_text(_configuration(folder))
    (folder / "state").mkdir()
    log = (folder / "slurmctld.out").open("w")
    with subprocess.Popen(
        [root() / "usr/sbin/slurmctld-wlm", "-D", "-c", "-f", conf],
        env=_environment(conf),
        stdout=log,
        stderr=log,
    ) as controller:
        try:
            _wait(conf)
            gres = run("scontrol", "update", f"NodeName=n[1-{NODES}]", f"Gres=gpu:h100:{GPUS}", conf=conf)
            assert gres.returncode == 0, gres.stderr
            yield conf
        finally:
            controller.terminate()
            log.close()


def _wait(conf: Path) -> None:
    for _ in range(100):
        if "UP" in run("scontrol", "ping", conf=conf).stdout:
            return
        time.sleep(0.1)
    raise AssertionError((conf.parent / "slurmctld.out").read_text())


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _configuration(folder: Path) -> str:
    me = os.environ.get("USER") or __import__("getpass").getuser()
    return f"""ClusterName=paper
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmUser={me}
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
AuthType=auth/none
CredType=cred/none
PluginDir={root()}/usr/lib/x86_64-linux-gnu/slurm-wlm
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdTimeout=0
ReturnToService=2
NodeName=n[1-{NODES}] NodeAddr=127.0.0.1 CPUs={CORES} RealMemory={MEMORY_MB} Gres=gpu:h100:{GPUS} State=IDLE
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
