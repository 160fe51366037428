"""The page, the targets and the plot made of a run's results."""

import unittest
import xml.etree.ElementTree as xml

from rig.plot import svg, ticks
from rig.report import markdown
from rig.targets import outcomes
from tests.sample import results


class Targets(unittest.TestCase):
    def setUp(self):
        self.by_title = {(o.title, o.wanted): o for o in outcomes(results())}

    def outcome(self, *words):
        return next(o for key, o in self.by_title.items() if all(word in " ".join(key) for word in words))

    def test_met(self):
        self.assertTrue(self.outcome("port-to-port").met)
        self.assertEqual(self.outcome("OVS over AF_XDP", "64 B").measured, "1.20x")
        self.assertTrue(self.outcome("TCP").met)
        self.assertTrue(self.outcome("two workers").met)

    def test_not_met(self):
        self.assertIs(self.outcome("`bridge`").met, False)
        self.assertEqual(self.outcome("OVS over AF_PACKET").verdict, "**not met**")

    def test_the_median_decides_and_the_quickest_slice_stands_beside_it(self):
        self.assertEqual(self.outcome("port-to-port").measured, "7.0 ns (quickest slice 5.5)")
        self.assertEqual(self.outcome("`bridge`").measured, "21.0 ns", "results of an older run have none")

    def test_idle(self):
        self.assertEqual([(o.measured, o.met) for o in outcomes(results())[-3:]], [("0.50 %", True), ("150 us", True), ("210 us", False)])
        absent = results()
        for entry in absent["planes"]["trivium-adaptive"]["rounds"]:
            del entry["idle"]
        self.assertEqual([o.met for o in outcomes(absent)[-3:]], [None] * 3)

    def test_not_measured_is_neither(self):
        for words in (("testpmd",), ("bridge-100k",), ("`parse`",)):
            self.assertIsNone(self.outcome(*words).met)


class Page(unittest.TestCase):
    def setUp(self):
        self.page = markdown(results(), "## Where the time goes\n\nBy hand.")

    def test_an_absent_peer_is_a_visible_row(self):
        self.assertIn("| testpmd io, net_af_xdp | io | not measured: dpdk-testpmd is not installed |", self.page)

    def test_medians_spreads_and_ratios(self):
        self.assertIn("| Trivium, AF_XDP | bridge | **1.200** (1.100-1.300) | 1.00x | 4.00 | 70 % |", self.page)
        self.assertIn("| OVS AF_PACKET | bridge | **0.500** (0.500-0.500) | 2.40x |", self.page)

    def test_kernel_planes_are_not_compared_with_ours(self):
        row = next(line for line in self.page.splitlines() if line.startswith("| Linux bridge | bridge |"))
        self.assertNotIn("x |", row)

    def test_all_rounds_are_shown_and_disturbed_ones_marked(self):
        self.assertIn("| 1.100 1.200 1.300 |", self.page)
        self.assertIn("| 4.500d |", self.page)

    def test_idle_is_shown_for_who_was_measured(self):
        self.assertIn("| Trivium, AF_XDP, adaptive | **0.50** (0.40-1.50) | **150** (120-160) | **210** (190-400) |", self.page)
        self.assertIn("| Trivium, AF_XDP, adaptive | idle, % of a core | 0.40 0.50 1.50 |", self.page)
        nobody = results()
        del nobody["planes"]["trivium-adaptive"]
        self.assertNotIn("## Idle", markdown(nobody))

    def test_the_quickest_slice_of_all_rounds(self):
        self.assertIn("| trivium bench port-to-port | **7.00** (7.00-7.00) | 5.50 |", self.page)
        self.assertIn("| trivium bench bridge | **21.00** (21.00-21.00) | - |", self.page)

    def test_the_command_to_reproduce_it(self):
        self.assertIn("bench/run --rounds 3 --seconds 1 --seed 7", self.page)

    def test_notes_go_in_as_they_stand(self):
        self.assertIn("## Where the time goes", self.page)

    def test_tables_have_even_rows(self):
        for block in self.page.split("\n\n"):
            lines = [line for line in block.splitlines() if line.startswith("|")]
            self.assertLessEqual(len({line.count("|") for line in lines}), 1, block)

    def test_no_two_columns_have_the_same_head(self):
        lines = self.page.splitlines()
        for above, rule in zip(lines, lines[1:]):
            if rule.startswith("|---|"):
                heads = [head.strip() for head in above.strip("|").split("|") if head.strip()]
                self.assertEqual(len(heads), len(set(heads)), above)


class Plot(unittest.TestCase):
    def test_it_is_xml_with_a_bar_for_each_figure(self):
        root = xml.fromstring(svg(results()))
        text = " ".join(element.text or "" for element in root.iter())
        self.assertIn("not measured", text)
        self.assertIn("OVS AF_XDP", text)
        bars = [e for e in root.iter() if e.tag.endswith("rect") and e.get("fill") != "#ffffff"]
        self.assertEqual(len(bars), 5 * 4 + 3)

    def test_bars_stay_inside(self):
        root = xml.fromstring(svg(results()))
        width = float(root.get("width"))
        for element in root.iter():
            if element.tag.endswith("rect"):
                self.assertLessEqual(float(element.get("x", 0)) + float(element.get("width")), width)

    def test_ticks_cover_the_highest_value(self):
        for highest in (0.3, 0.95, 1.0, 4.6, 7.3, 19.9, 118.0, 2030.0):
            marks = ticks(highest)
            self.assertGreaterEqual(marks[-1], highest)
            self.assertTrue(3 <= len(marks) <= 8, (highest, marks))


if __name__ == "__main__":
    unittest.main()
