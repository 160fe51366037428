"""The page and the picture of `bench/hook`, from made-up figures."""

import unittest
import xml.etree.ElementTree as xml

from rig import curves


def results(idle: float, alive: float) -> dict:
    """Two rounds in which every plane does the same."""
    def bridge() -> list[dict]:
        return [{"load": load, "sent_mpps": load, "mpps": load * 0.9, "busy": max(idle, load / 2.5),
                 "ping": {"p50": 50 + 10 * load, "p99": 90}, "disturbed": False} for load in curves.LOADS]

    def service() -> dict:
        return {"quiet": 9000.0, "points": [{"flood": flood, "sent_mpps": flood * 3, "kept": alive} for flood in curves.FLOODS]}

    return {"settings": {"rounds": 2, "seconds": 1}, "ceiling": [3.0, 3.2],
            "host": {"cpu": "CPU <1>", "cpus": 2, "kernel": "6.18", "date": "today"},
            "bridge": {key: {"title": f"{key}, a plane", "rounds": [bridge(), bridge()]}
                       for key in ("trivium-hook", "linux-bridge", "xdp-redirect")},
            "service": {key: {"title": title, "rounds": [service(), service()]} for key, (title, _) in curves.DEFENCES.items()}}


class Page(unittest.TestCase):
    """What is written."""

    def test_targets_are_met_or_not(self):
        self.assertEqual(curves.markdown(results(0.001, 0.9)).count("| met |"), 2)
        missed = curves.markdown(results(0.02, 0.7))
        self.assertEqual(missed.count("**not met**"), 2)
        self.assertIn("| 2.00 % |", missed)
        self.assertIn("| 70 % |", missed)

    def test_every_load_has_its_column(self):
        page = curves.markdown(results(0.0, 1.0))
        self.assertIn("40.0 % (10 %)", page)  # 1 Mpps, a tenth of it lost
        for load in curves.LOADS:
            self.assertIn(f"{load:g} Mpps |", page)

    def test_the_picture_is_xml(self):
        root = xml.fromstring(curves.svg(results(0.0, 1.0)))
        lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 9)


if __name__ == "__main__":
    unittest.main()
