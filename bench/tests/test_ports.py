"""The page about many ports, and the configuration that they come from."""

import unittest

from rig import build, ports


def results(ready: float) -> dict:
    """Two rounds of 1 and 200 ports."""
    entry = {"ready_s": ready, "idle_percent": 0.2, "rss_mib": 100.0, "kernel_mib": 8.0, "remove_s": 1.0, "add_s": 2.0}
    host = {"cpu": "CPU", "cpus": 2, "kernel": "6.18", "date": "today"}
    return {"settings": {"rounds": 2, "counts": [1, 200]}, "host": host, "ports": {"1": [entry] * 2, "200": [entry] * 2}}


class Page(unittest.TestCase):
    """Goals stand beside the figures of 200 ports, missed ones are called so."""

    def test_goals_that_are_met_or_missed_are_told(self):
        met, missed = ports.markdown(results(2.5)), ports.markdown(results(3.5))
        self.assertIn("2.50 [2.50-2.50] (wanted 3)", met)
        self.assertIn("3.50 [3.50-3.50] (wanted 3, **not met**)", missed)
        self.assertEqual(met.count("wanted"), 3)
        self.assertIn(build.UNKNOWN, met)

    def test_every_port_has_a_device_and_a_place_in_the_bridge(self):
        text = ports.objects(3, "far")
        self.assertEqual(text.count("[port.v3.peer]"), 1)
        self.assertEqual(text.count("[bridge.br0.port."), 3)

    def test_a_thousand_ports_have_frames_enough(self):
        self.assertTrue(all(ports.frames(count) >= 128 * count + 256 for count in (1, 50, 200, 500, 501, 1000)))


if __name__ == "__main__":
    unittest.main()
