"""What a failure did to a stream, and the page about it."""

import socket
import struct
import unittest

from rig import convergence
from rig.system import BenchError

MS = 10 ** 6
BEGIN = 1_700_000_000 * 10 ** 9


END = BEGIN + 999 * MS


def stream(lost: range, count: int = 1000) -> list[int]:
    """A packet each millisecond, but for those."""
    return [0 if number in lost else BEGIN + number * MS for number in range(count)]


class Outcome(unittest.TestCase):
    """Silence and loss."""

    def test_silence_counts_from_the_last_packet_before_the_failure(self):
        found = convergence.outcome(stream(range(500, 600)), 1000, BEGIN + 490 * MS, END, BEGIN + 590 * MS)
        self.assertEqual((found["silence_ms"], found["lost"], found["sent"]), (101, 100, 1000))
        self.assertEqual(found["told_ms"], 91)
        self.assertEqual((found["next_ms"], found["quiet_ms"]), (10, 1))

    def test_silence_before_the_failure_is_not_the_failures(self):
        found = convergence.outcome(stream(range(100, 200)), 1000, BEGIN + 500 * MS, END, None)
        self.assertEqual((found["silence_ms"], found["quiet_ms"]), (1, 101))
        self.assertNotIn("next_ms", found)

    def test_what_is_late_overtakes_nothing(self):
        arrived = stream(range(0))
        arrived[500] = BEGIN + 700 * MS + 1
        self.assertEqual(convergence.outcome(arrived, 1000, BEGIN + 400 * MS, END, None)["silence_ms"], 2)

    def test_a_stream_that_never_comes_back_is_an_error(self):
        self.assertRaises(BenchError, convergence.outcome, stream(range(500, 1000)), 1000, BEGIN + 499 * MS, END, None)
        self.assertRaises(BenchError, convergence.outcome, stream(range(0, 1000)), 1000, BEGIN, END, None)


def message(kind: int, destination: str) -> bytes:
    """A route as netlink tells it: table and destination."""
    attributes = struct.pack("=HHI", 8, 15, 254) + struct.pack("=HH", 8, 1) + socket.inet_aton(destination)
    return struct.pack("=IHHII", 28 + len(attributes), kind, 0, 1, 0) + bytes(12) + attributes


class Told(unittest.TestCase):
    """Messages of netlink."""

    def test_new_routes_alone_count(self):
        data = message(25, "10.0.0.0") + message(24, "10.97.9.0") + message(24, "10.1.0.0")
        self.assertEqual(list(convergence.new_routes(data)), [bytes([10, 97, 9, 0]), bytes([10, 1, 0, 0])])

    def test_what_is_cut_off_ends(self):
        whole = message(24, "10.97.9.0")
        for length in range(len(whole)):
            list(convergence.new_routes(whole[:length]))
        self.assertEqual(list(convergence.new_routes(struct.pack("=IH", 0, 24) + bytes(40))), [])


class Page(unittest.TestCase):
    """What readers see."""

    def test_medians_of_each_failure(self):
        rounds = [{"carrier": {"silence_ms": ms, "lost": 10 * ms, "told_ms": 5.0, "next_ms": 0.25, "quiet_ms": 0.5},
                   "silent": {"silence_ms": 300.0, "lost": 3000, "quiet_ms": 0.5}} for ms in (30, 10, 20)]
        page = convergence.markdown({"settings": {"rounds": 1, "events": 3, "rate": 10_000}, "planes": {"linux": {"title": "Linux", "rounds": rounds}},
                                     "host": {"cpu": "a CPU", "cpus": 2, "kernel": "6.18", "date": "today"}})
        self.assertIn("| Linux | 20.0 [10.0-30.0] | 200 [100-300] | 5.0 [5.0-5.0] | 0.25 [0.25-0.25] | 0.5 [0.5-0.5] |", page)
        self.assertIn("| Linux | 300.0 [300.0-300.0] | 3000 [3000-3000] | - | - | 0.5 [0.5-0.5] |", page)
        self.assertIn("10,000 packets a second", page)


if __name__ == "__main__":
    unittest.main()
