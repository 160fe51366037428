"""What the report says about the machine and the versions under test."""

import datetime
import os
import platform
from pathlib import Path

from .netns import Namespace
from .system import run

_SYSCTLS = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables",
            "net.bridge.bridge-nf-call-arptables", "net.ipv4.conf.all.rp_filter", "net.ipv6.conf.all.disable_ipv6")
_SYSCTLS_OF_THE_HOST = ("net.core.bpf_jit_enable", "net.core.dev_weight", "net.core.netdev_budget")


def describe(namespace: Namespace) -> dict:
    """CPU, kernel, memory and the sysctls as they stand in the plane's namespace."""
    cpu = Path("/proc/cpuinfo").read_text()
    fields = dict(line.split(":", 1) for line in cpu.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": fields.get("model name", platform.machine()),
        "cpus": os.cpu_count(),
        "hypervisor": run(["systemd-detect-virt"], check=False).strip() if Path("/usr/bin/systemd-detect-virt").exists()
        else ("yes" if " hypervisor" in cpu else "none"),
        "kernel": platform.release(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "sysctls": {key: namespace.sysctl_value(key) for key in _SYSCTLS},
        "host_sysctls": {key: (Path("/proc/sys") / key.replace(".", "/")).read_text().strip() for key in _SYSCTLS_OF_THE_HOST},
        "tools": {"iperf3": run(["iperf3", "--version"], check=False).split("\n")[0],
                  "ping": run(["ping", "-V"], check=False).strip(),
                  "clang": run(["clang", "--version"], check=False).split("\n")[0]},
    }
