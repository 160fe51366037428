"""What the programs print, and the frames that the rig makes."""

import json
import struct
import unittest

from rig.cpu import Snapshot, usage
from rig.lab import host_mac
from rig.memory import parse_bench, parse_testpmd
from rig.system import BenchError
from rig.traffic import frame_template, ipv4_checksum, parse_iperf3, parse_ping

PING = """PING 10.99.0.2 (10.99.0.2) 56(84) bytes of data.
64 bytes from 10.99.0.2: icmp_seq=1 ttl=64 time=0.100 ms
64 bytes from 10.99.0.2: icmp_seq=2 ttl=64 time=0.050 ms
64 bytes from 10.99.0.2: icmp_seq=4 ttl=64 time=2.000 ms

--- 10.99.0.2 ping statistics ---
4 packets transmitted, 3 received, 25% packet loss, time 30ms
"""

SHOWN = """  ######################## NIC statistics for port 0  ########################
  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Rx-pps:            0          Rx-bps:            0
  Rx-pps:     59000000          Rx-bps:            0
  Tx-pps:     59000001          Tx-bps:            0
  Rx-pps:     60000000          Rx-bps:            0
"""


class Parsers(unittest.TestCase):
    def test_ping(self):
        found = parse_ping(PING)
        self.assertEqual((found.sent, found.received), (4, 3))
        self.assertEqual((found.p50, found.highest), (100.0, 2000.0))

    def test_ping_without_answer_is_an_error(self):
        with self.assertRaisesRegex(BenchError, "no answer"):
            parse_ping("3 packets transmitted, 0 received, 100% packet loss, time 30ms")

    def test_iperf3(self):
        text = json.dumps({"end": {"sum_received": {"bits_per_second": 2.5e9}, "sum_sent": {"retransmits": 4}}})
        self.assertEqual(parse_iperf3(text), (2.5, 4))

    def test_iperf3_tells_its_error(self):
        with self.assertRaisesRegex(BenchError, "unable to connect"):
            parse_iperf3('{"error": "unable to connect to server"}')
        with self.assertRaisesRegex(BenchError, "no JSON"):
            parse_iperf3("")

    def test_testpmd_takes_the_last_two_ports(self):
        self.assertAlmostEqual(parse_testpmd(SHOWN), 119.0)

    def test_testpmd_that_moved_nothing_is_an_error(self):
        with self.assertRaises(BenchError):
            parse_testpmd("Rx-pps: 0\nRx-pps: 0\n")

    def test_bench_reads_the_last_line(self):
        line = json.dumps({"scenario": "bridge", "mpps": 50, "ns_per_packet": 20, "tsc_cycles_per_packet": 50, "allocations": 0,
                           "loss": 0, "packets": 1})
        self.assertEqual(parse_bench(f"source alone: 3 ns\n{line}\n")["mpps"], 50)

    def test_bench_names_what_is_absent(self):
        with self.assertRaisesRegex(BenchError, "allocations"):
            parse_bench('{"scenario": "bridge", "mpps": 1, "ns_per_packet": 1, "tsc_cycles_per_packet": 1, "loss": 0, "packets": 1}')
        with self.assertRaises(BenchError):
            parse_bench("")


class Frames(unittest.TestCase):
    def test_the_template_is_a_sound_frame(self):
        frame = frame_template()
        self.assertEqual(len(frame), 60)
        self.assertEqual(frame[:6], host_mac(0))
        self.assertEqual(frame[12:14], b"\x08\x00")
        header = frame[14:34]
        self.assertEqual(ipv4_checksum(header), 0, "a header with its checksum sums to all ones")
        self.assertEqual(struct.unpack("!H", header[2:4])[0], len(frame) - 14)
        self.assertEqual(frame[36:38], b"\x00\x09", "the sink counts UDP port 9")

    def test_hosts_differ_in_the_bytes_that_the_program_writes(self):
        self.assertEqual(host_mac(0x1234)[4:], b"\x12\x34")
        self.assertEqual(host_mac(0)[:4], host_mac(4095)[:4])
        self.assertEqual(host_mac(0)[0] & 1, 0, "not a group address")


class CpuTime(unittest.TestCase):
    def test_busy_is_what_neither_idle_nor_steal_took(self):
        a = Snapshot(10.0, {0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.0}, {(1, 5): 1.0, (2, 6): 0.0})
        b = Snapshot(12.0, {0: 1.5, 1: 3.0}, {0: 0.5, 1: 0.0}, {(1, 5): 2.0, (2, 6): 0.2, (3, 7): 0.4})
        used = usage(a, b, ours={1})
        self.assertEqual(used.busy, {0: 1.0, 1: 0.0})
        self.assertAlmostEqual(used.steal, 0.25)
        self.assertAlmostEqual(used.foreign, 0.3, msg="a new process counts from zero, ours do not count")
        self.assertTrue(used.disturbed())


if __name__ == "__main__":
    unittest.main()
