from dataclasses import replace
from pathlib import Path

import pytest

from escala.formats.bench_record import DeviceFacts, HostFacts
from escala.measurement.bench.host import (
    cgroup_paths,
    container_cores,
    container_memory_bytes,
    fingerprint,
    host_facts,
    memory_bytes,
    numa_cores,
    numa_nodes,
    processor,
    usable_bytes,
    usable_cores,
)

CPUINFO = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R)  Xeon(R)   Gold 6148\nflags\t: fpu\n"
)
MEMINFO = "MemTotal:       24731708 kB\nMemFree:         1000 kB\n"
HOST = HostFacts(system="Linux", processor="p", cores=8, numa_nodes=1, memory_bytes=64e9)
DEVICE = DeviceFacts(kind="cpu", name="p", memory_bytes=64e9, devices_in_node=1, clock_hz=1e9)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_processor_and_memory_are_read_from_proc():
    assert processor(CPUINFO) == "Intel(R) Xeon(R) Gold 6148"
    assert processor("") == ""
    assert memory_bytes(MEMINFO) == 24731708 * 1024
    assert memory_bytes("") is None


def test_limits_of_cgroup_v2(tmp_path: Path):
    files = {
        "proc/self/cgroup": "0::/job\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/job/memory.max": "8589934592\n",
    }
    facts = host_facts(tree(tmp_path, files))

    assert facts.container_cores == 1.5
    assert facts.container_memory_bytes == 8 * 2**30


def test_limits_of_cgroup_v1_where_the_own_path_is_not_mounted(tmp_path: Path):
    files = {
        "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n",
    }
    facts = host_facts(tree(tmp_path, files))

    assert facts.container_cores == 2.0
    assert facts.container_memory_bytes == 4 * 2**30


@pytest.mark.parametrize("text", ["max 100000", "-1", "", "x y"])
def test_no_quota_is_no_limit(text: str):
    assert container_cores({"cpu.max": text}) is None


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "", "99000000000"])
def test_a_limit_that_is_none_or_above_the_memory_is_no_limit(limit: str):
    assert container_memory_bytes({"memory.max": limit}, 64e9) is None


def test_paths_by_controller():
    assert cgroup_paths("4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/\nbroken") == {
        "memory": "a/b",
        "cpu": "c",
        "cpuacct": "c",
        "": "",
    }


def test_a_system_that_says_nothing_still_has_a_core(tmp_path: Path):
    facts = host_facts(tmp_path)

    assert facts.cores >= 1
    assert (facts.numa_nodes, facts.memory_bytes, facts.container_cores) == (1, None, None)


def test_numa_nodes_are_counted(tmp_path: Path):
    files = {f"sys/devices/system/node/node{i}/cpulist": f"{8 * i}-{8 * i + 7}\n" for i in range(4)}

    root = tree(tmp_path, files | {"sys/devices/system/node/possible": "0-3"})

    assert numa_nodes(root) == 4
    assert numa_cores(root) == ("0-7", "8-15", "16-23", "24-31")


def test_a_container_takes_less_than_the_node_has():
    inside = replace(HOST, container_cores=2.5, container_memory_bytes=16e9)

    assert (usable_cores(HOST), usable_bytes(HOST)) == (8, 64e9)
    assert (usable_cores(inside), usable_bytes(inside)) == (2, 16e9)
    assert usable_cores(replace(HOST, container_cores=0.5)) == 1


def test_a_fingerprint_changes_with_what_decides_speed_and_not_with_the_clock_of_the_moment():
    usual = fingerprint(DEVICE, HOST, {"torch": "2.13"}, 2)

    assert fingerprint(replace(DEVICE, clock_hz=3e9), HOST, {"torch": "2.13"}, 2) == usual
    assert fingerprint(DEVICE, HOST, {"torch": "2.14"}, 2) != usual
    assert fingerprint(replace(DEVICE, power_cap_w=500.0), HOST, {"torch": "2.13"}, 2) != usual
    assert fingerprint(DEVICE, replace(HOST, container_cores=1.0), {"torch": "2.13"}, 2) != usual
    assert fingerprint(DEVICE, HOST, {"torch": "2.13"}, 4) != usual
