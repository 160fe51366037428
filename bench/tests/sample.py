"""Results as a run leaves them, with round numbers to check by eye."""


def load(mpps: float, offered: float = 4.0, disturbed: bool = False) -> dict:
    return {"seconds": 1.0, "offered": int(offered * 1e6), "forwarded": int(mpps * 1e6), "delivered": int(mpps * 1e6), "mpps": mpps,
            "cpu_ns": [1000 / mpps, 900 / mpps], "cpu_busy": [1.0, 0.9], "steal": 0.0, "foreign": 0.0, "disturbed": disturbed}


def plane(title: str, group: str, rates: list[float], gbps: float) -> dict:
    return {"title": title, "group": group, "work": "bridge", "missing": None, "version": "1.0", "rounds": [
        {"load": {"few": load(rate), "many": load(rate / 2)}, "tcp": {"gbps": gbps, "retransmits": 3, "disturbed": False},
         "ping": {"sent": 20, "received": 20, "p50": 50.0, "p99": 90.0, "highest": 99.0}} for rate in rates]}


def bench(title: str, ns: float, mpps: float | None = None, best: tuple[float, ...] = ()) -> dict:
    entry = {"mpps": mpps or 1000 / ns, "ns_per_packet": ns, "allocations": 0, "tsc_cycles_per_packet": ns * 2.5, "loss": 0, "packets": 10}
    return {"title": title, "missing": None, "rounds": [entry | {"best_ns_per_packet": low} for low in best] or [entry]}


def results() -> dict:
    absent = {"title": "testpmd io, net_af_xdp", "group": "user", "work": "io", "missing": "dpdk-testpmd is not installed", "rounds": []}
    ours = plane("Trivium, AF_XDP", "user", [1.1, 1.2, 1.3], 4.0)
    for entry in ours["rounds"]:
        entry["memory"] = {"own_mib": 20.0, "frames_mib": 64.0}
    adaptive = plane("Trivium, AF_XDP, adaptive", "user", [0.9, 1.0, 1.1], 3.0)
    for entry, percent, middle, high in zip(adaptive["rounds"], (0.4, 0.5, 1.5), (120.0, 150.0, 160.0), (190.0, 210.0, 400.0)):
        entry["idle"] = {"cpu_percent": percent, "seconds": 5.0,
                         "ping": {"sent": 10, "received": 10, "p50": middle, "p99": high, "highest": high}}
    return {
        "settings": {"rounds": 3, "seconds": 1, "seed": 7, "retries": 2, "only": []},
        "host": {"date": "2026-01-01 00:00 UTC", "cpu": "Some CPU", "cpus": 2, "hypervisor": "kvm", "kernel": "6.18", "memory_gib": 8,
                 "load_before": 0.1, "sysctls": {"net.ipv4.conf.all.rp_filter": "0"}, "tools": {"iperf3": "3.12"}},
        "planes": {"trivium": ours, "trivium-adaptive": adaptive,
                   "ovs-af-xdp": plane("OVS AF_XDP", "user", [0.8, 1.0, 1.2], 2.0), "testpmd-af-xdp": absent,
                   "ovs-af-packet": plane("OVS AF_PACKET", "user", [0.5], 1.0),
                   "linux-bridge": plane("Linux bridge", "kernel", [0.65], 6.0)},
        "ceilings": {"drop-across": {"title": "drop", "rounds": [{"load": {"few": load(4.5, 4.6, True)}}]}},
        "memory": {"port-to-port": bench("trivium bench port-to-port", 7.0, best=(6.1, 5.5)), "bridge": bench("trivium bench bridge", 21.0, 50.0),
                   "bridge-2-workers": bench("trivium bench bridge --workers 2", 11.0, 95.0)},
    }
