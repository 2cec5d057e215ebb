"""Options of sbatch: those that its manual names and the program itself knows."""

import gzip
import re
import tempfile
from pathlib import Path

from escala.foreign.keys import Key, Section, Table
from oracles.slurm_cluster import root, run

OPTION = re.compile(r"--([a-z][a-z-]*[a-z])")


def table() -> Table:
    """All of them."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "slurm.conf"
        plugins = root() / "usr/lib/x86_64-linux-gnu/slurm-wlm"
        conf.write_text(f"ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nPluginDir={plugins}\n")
        version = run("sbatch", "--version", conf=conf).stdout.split()[1].rsplit("-")[0]
        help_text = run("sbatch", "--help", conf=conf).stdout
        known = [name for name in candidates(conf) if is_known(name, conf)]
        names = [name for name in known if name in OPTION.findall(help_text) or not _is_short(name, known)]
    release = ".".join(version.split(".")[:2])
    return Table(
        tool="sbatch",
        version=release,
        source=f"sbatch {version} itself, asked for every option of its manual",
        sections={"": Section(keys={name: Key() for name in sorted(names)}, strict=True)},
    )


def candidates(conf: Path) -> set[str]:
    """Long options that the manual and the help name."""
    page = gzip.decompress((root() / "usr/share/man/man1/sbatch.1.gz").read_bytes()).decode()
    plain = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-")
    return set(OPTION.findall(plain + run("sbatch", "--help", conf=conf).stdout))


def is_known(name: str, conf: Path) -> bool:
    """Whether sbatch knows an option by its whole name: the help is printed, or its value is refused."""
    said = run("sbatch", f"--{name}", "--help", conf=conf).stderr
    return not re.search(r"unrecognized option|ambiguous", said) and f"{name}-x" not in said


def _is_short(name: str, known: list[str]) -> bool:
    """Whether a name may be known because another begins with it."""
    return any(other != name and other.startswith(name) for other in known)
