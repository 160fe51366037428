"""The page of two routers, and the frames that go through them."""

import unittest

from rig import routers, traffic


def results(linux: float, trivium: float) -> dict:
    """One round of one size."""
    def entry(kind, mpps: float) -> dict:
        return {"title": kind.title, "ports": kind.ports,
                "rounds": [{"64": {"mpps": mpps, "busy": 0.99}}, {"64": {"mpps": mpps * 2, "busy": 0.5}}, {"64": {"mpps": mpps, "busy": 0.98}}]}
    return {"settings": {"rounds": 3, "seconds": 1, "sizes": [64]},
            "host": {"cpu": "a CPU", "cpus": 2, "kernel": "6.18", "date": "today"},
            "planes": {"linux": entry(routers.Linux, linux), "trivium": entry(routers.Trivium, trivium)}}


class Page(unittest.TestCase):
    """What readers see."""

    def test_ratio_of_medians(self):
        page = routers.markdown(results(0.25, 0.5))
        self.assertIn("| 64 | 0.25 [0.25-0.50], 98 % | 0.50 [0.50-1.00], 98 % | 2.00x |", page)

    def test_paper(self):
        self.assertIn("7.86x", routers.markdown(results(1, 1)))


class Frames(unittest.TestCase):
    """Sizes count the FCS."""

    def test_lengths_and_checksum(self):
        for size in routers.SIZES:
            frame = traffic.frame_template("10.50.0.0", "10.97.1.2", size - 4)
            self.assertEqual(len(frame), size - 4)
            self.assertEqual(int.from_bytes(frame[16:18], "big"), size - 18)
            self.assertEqual(int.from_bytes(frame[38:40], "big"), size - 38)
            self.assertEqual(traffic.ipv4_checksum(frame[14:34]), 0)
            self.assertEqual(frame[26:34], bytes([10, 97, 1, 2, 10, 50, 0, 0]))


if __name__ == "__main__":
    unittest.main()
