"""The counts of a run are those of its parts, and a part that fails is never counted as passed."""

import io
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import totals


class Counted(unittest.TestCase):
    def counts(self, text, status=0):
        found = totals.counted("x", text, status)
        return found.passed, found.failed, len(found.skipped)

    def test_libtest(self):
        text = ("test a ... ok\ntest b ... ignored, takes an hour\ntest result: ok. 7 passed; 0 failed; 1 ignored; 0 measured\n"
                "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n")
        self.assertEqual(self.counts(text, 101), (9, 1, 1))

    def test_unittest(self):
        self.assertEqual(self.counts("....\nRan 4 tests in 0.1s\n\nOK\n"), (4, 0, 0))
        self.assertEqual(self.counts("Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=1)\n", 1), (1, 2, 1))

    def test_fuzz(self):
        self.assertEqual(self.counts("fuzz: 27 targets, 10 s each, 0 failed\n"), (27, 0, 0))
        self.assertEqual(self.counts("fuzz: 27 targets, 10 s each, 2 failed: a b (inputs in fuzz/artifacts)\n", 1), (25, 2, 0))

    def test_a_command_without_counts_is_one_test(self):
        self.assertEqual(self.counts("clean\n"), (1, 0, 0))
        self.assertEqual(self.counts("killed\n", -9), (0, 1, 0))

    def test_a_failure_that_no_test_names_is_counted(self):
        self.assertEqual(self.counts("test result: ok. 7 passed; 0 failed; 0 ignored\n", 1), (7, 1, 0))


class Run(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = str(Path(directory.name) / "totals")

    def last(self, status):
        with redirect_stdout(io.StringIO()) as said:
            totals.show(self.path, status)
        return said.getvalue().splitlines()

    def test_parts_add_up_and_the_last_line_is_plain(self):
        with redirect_stdout(io.StringIO()) as said:
            self.assertEqual(totals.run(self.path, "one", ["printf", "Ran 3 tests in 1s\n\nOK (skipped=1)\n"]), 0)
            self.assertEqual(totals.run(self.path, "two", ["false"]), 1)
        self.assertIn("Ran 3 tests", said.getvalue())
        lines = self.last(1)
        self.assertEqual(lines[-1], "2 passed, 1 failed, 1 skipped")
        self.assertIn("  one: a unit test: skipped by unittest", lines)

    def test_a_run_that_failed_elsewhere_has_a_failure(self):
        totals.record(totals.Totals(passed=3), self.path)
        self.assertEqual(self.last(2)[-1], "3 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
