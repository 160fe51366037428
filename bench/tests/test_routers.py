"""The page of two routers, and the frames that go through them."""

import unittest

from rig import routers, routing, traffic


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
            frame = traffic.frame_template("0.0.0.0", "10.97.1.2", size - 4)
            self.assertEqual(len(frame), size - 4)
            self.assertEqual(int.from_bytes(frame[16:18], "big"), size - 18)
            self.assertEqual(int.from_bytes(frame[38:40], "big"), size - 38)
            self.assertEqual(traffic.ipv4_checksum(frame[14:34]), 0)
            self.assertEqual(frame[26:34], bytes([10, 97, 1, 2, 0, 0, 0, 0]))


    def test_destinations_are_in_all_prefixes(self):
        found = {target >> 8 for target in routers.TARGETS}
        self.assertEqual(found, {10 << 16 | 50 << 8 | number for number in range(routers.PREFIXES)})
        self.assertEqual(len(routers.TARGETS) & len(routers.TARGETS) - 1, 0)


class OneRouter(unittest.TestCase):
    """`bench/router`."""

    def test_destinations_are_in_their_prefixes(self):
        table = [(20 << 24, 8), (30 << 24 | 1 << 8, 24)]
        found = routing.targets("full", table)
        self.assertEqual(len(found), 1 << 20)
        self.assertEqual({target >> 24 for target in found}, {20, 30})
        self.assertTrue(all(target >> 8 == 30 << 16 | 1 for target in found if target >> 24 == 30))

    def test_ratios(self):
        def entry(one: float, full: float | None = None) -> dict:
            points = {"one": {"mpps": one, "busy": 1, "generator_busy": 1}} | ({"full": {"mpps": full, "busy": 1, "generator_busy": 1}} if full else {})
            return {"title": "t", "group": "kernel", "work": "w", "rounds": [points]}
        found = {"settings": {"rounds": 1, "seconds": 1, "tables": ["one", "full"], "routes": 2},
                 "host": {"cpu": "a CPU", "cpus": 2, "kernel": "6.18", "date": "today"},
                 "planes": {"linux": entry(1, 0.5), "trivium-hook": entry(2.5, 1.5), "trivium": entry(1, 1), "testpmd-mac": entry(0.9), "recvmsg": entry(0.5)}}
        self.assertEqual([row[2:] for row in routing.wanted(found)],
                         [["2.50x", "met"], ["3.00x", "**not met**"], ["1.11x", "met"], ["2.00x", "**not met**"]])
        self.assertIn("looks nothing up", routing.markdown(found))


if __name__ == "__main__":
    unittest.main()
