"""Medians, spreads, quantiles."""

import unittest

from rig.stats import pick, ratio, summarize
from rig.traffic import quantile


class Summaries(unittest.TestCase):
    def test_median_of_odd_and_even(self):
        self.assertEqual(summarize([3, 1, 2]).median, 2)
        self.assertEqual(summarize([4, 1, 2, 3]).median, 2.5)

    def test_spread_is_relative_to_the_median(self):
        self.assertAlmostEqual(summarize([0.9, 1.0, 1.2]).spread, 0.3)

    def test_nothing_measured_is_none_and_not_zero(self):
        self.assertIsNone(summarize([]))
        self.assertIsNone(ratio(summarize([]), summarize([1])))

    def test_rounds_without_the_number_are_left_out(self):
        rounds = [{"tcp": {"gbps": 2.0}}, {"error": "no answer"}, {"tcp": {"gbps": 4.0}}]
        self.assertEqual(pick(rounds, "tcp", "gbps").rounds, (2.0, 4.0))

    def test_a_measured_zero_counts(self):
        self.assertEqual(pick([{"loss": 0}], "loss").median, 0)

    def test_nearest_rank(self):
        ordered = [float(n) for n in range(1, 101)]
        self.assertEqual(quantile(ordered, 0.5), 50)
        self.assertEqual(quantile(ordered, 0.99), 99)
        self.assertEqual(quantile([5.0], 0.99), 5)


if __name__ == "__main__":
    unittest.main()
