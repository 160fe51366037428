"""The side-by-side rig behind `make bench`: starts each data plane between two namespaces, drives the same
traffic through it, and writes `docs/benchmarks.md`, `docs/benchmarks.svg` and `bench/results/latest.json`.

    namespace gen          namespace dut            namespace sink
    generator, core 0  g0 ---- d0 [plane, core 1] d1 ---- s0  counting XDP drop

`cli` drives, `lab` and `netns` make the namespaces, `planes/` holds one file per data plane, `traffic` the
load, ping and iperf3, `memory` the benches without devices, `stats`, `report` and `plot` what becomes of it.
"""
