"""What `bench/switch` feeds, reads and writes."""

import struct
import unittest

from rig import switching


class Frames(unittest.TestCase):
    def test_each_frame_is_a_whole_packet_to_an_address_of_its_own(self):
        frames = [bytes.fromhex(switching.frame(number)) for number in (1, 2, 70_000)]
        self.assertEqual({len(frame) for frame in frames}, {60})
        for frame in frames:
            self.assertEqual(struct.unpack("!H", frame[16:18])[0], len(frame) - 14)
            self.assertEqual(struct.unpack("!H", frame[38:40])[0], len(frame) - 34)
        self.assertEqual([frame[30:34] for frame in frames], [b"\x0a\0\0\1", b"\x0a\0\0\2", b"\x0a\x01\x11\x70"])


class Reports(unittest.TestCase):
    def test_rows_are_told_apart(self):
        self.assertEqual(switching.by_row({"scenario": "upcall", "upcalls": 7}), {"": {"upcalls": 7}})
        rows = {"scenario": "x", "rows": [{"row": "a", "flows": 1}, {"row": "b", "flows": 2.5}]}
        self.assertEqual(switching.by_row(rows), {"a": {"flows": 1}, "b": {"flows": 2.5}})

    def test_the_page_says_what_is_met_and_what_was_not_measured(self):
        values = {"upcall": {"": {"upcalls_per_second": [300_000, 500_000, 410_000]}},
                  "classifier-500k": {"few keys": {"ns_per_lookup": [123.7]}}}
        page = switching.page({"rounds": 3, "seconds": 1, "note": "busy", "cpu": "c", "cpus": 2, "kernel": "k", "date": "d", "values": values})
        self.assertIn("| `upcall`: at least 400,000 a second | 410,000 | met |", page)
        self.assertIn("| `classifier-500k`, few keys: at least 10 M a second | 123.7 | **not met** |", page)
        self.assertIn("| `emc`: at most 30 ns a packet | not measured | |", page)
        self.assertIn("**busy**", page)

    def test_ours_stands_beside_open_vswitchs(self):
        values = {"veth": {switching.live.RulesWorker.title: {"output_mpps": [1.3, 1.1, 1.2], "normal_mpps": [1.5]},
                           switching.live.RulesOvs.title: {"output_mpps": [1.0], "normal_mpps": [1.0]}}}
        page = switching.page({"rounds": 3, "seconds": 1, "note": "", "cpu": "c", "cpus": 2, "kernel": "k", "date": "d", "values": values})
        self.assertIn("at least 1.2 times Open vSwitch | 1.2 times (`output_mpps`) | met |", page)
        self.assertIn("| the same in the driver hook: at least 2 times | not measured | |", page)
        self.assertIn("| output_mpps | 1.2 | 1 |", page)

    def test_the_row_that_misses_decides(self):
        hook, ovs = switching.live.RulesHook.title, switching.live.RulesOvs.title
        values = {"revalidate-200k": {"1 table": {"seconds_of_a_round": [0.5], "round_p50_us": [14.0], "quiet_p50_us": [7.5]},
                                      "15 tables": {"seconds_of_a_round": [3.78], "round_p50_us": [14.0], "quiet_p50_us": [6.0]}},
                  "veth": {hook: {"output_mpps": [2.1], "normal_mpps": [1.91]}, ovs: {"output_mpps": [1.0], "normal_mpps": [1.0]}}}
        page = switching.page({"rounds": 1, "seconds": 1, "note": "", "cpu": "c", "cpus": 2, "kernel": "k", "date": "d",
                               "run": {"commit": "abc", "binary": "0123456789abcdef0123", "command": "bench/switch --rounds 1", "began": "b"},
                               "values": values})
        self.assertIn("| `revalidate-200k`: under 1 s | 3.78 (15 tables) | **not met** |", page)
        self.assertIn("median at most doubled | 2.33 (15 tables) | **not met** |", page)
        self.assertIn("in the driver hook: at least 2 times | 1.91 times (`normal_mpps`) | **not met** |", page)
        self.assertIn("Build abc (`trivium` with SHA-256 0123456789abcdef), all rows in one run of `bench/switch --rounds 1`, begun b.", page)


if __name__ == "__main__":
    unittest.main()
