"""The table of scaled-down tests in CONTRIBUTING.md has the figures that the tests and `ci/soak` have."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| [^|]+ \| `([a-z]+/tests/[a-z_/]+\.rs)` \| ([0-9,]+) \| ([^|]+) \|$", re.MULTILINE)
#: Tests whose long figure is a variable of `ci/soak`.
BY_VARIABLE = {"engine/tests/bridge.rs": "TRIVIUM_SOAK_FRAMES", "xdp/tests/persist.rs": "XDP_SWAPS", "xdp/tests/user.rs": "XDP_SWAPS",
               "daemon/tests/full_table.rs": "TRIVIUM_PREFIXES"}


def numbers(text):
    """The numbers of a source, without the marks between their digits."""
    return set(re.findall(r"\d+", re.sub(r"(?<=\d)_(?=\d)", "", text)))


class Scale(unittest.TestCase):
    def test_the_table_is_what_the_tests_do(self):
        soak = (ROOT / "ci/soak").read_text(encoding="utf-8")
        rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(rows), 11)
        for file, short, long in rows:
            source = (ROOT / "crates" / file).read_text(encoding="utf-8")
            with self.subTest(file):
                self.assertIn(short.replace(",", ""), numbers(source))
                variable = BY_VARIABLE.get(file, "TRIVIUM_SOAK")
                self.assertIn(f'"{variable}"', source)
                self.assertIn(f"export {variable}=", soak)
                if variable == "TRIVIUM_SOAK":
                    self.assertIn(long.replace(",", ""), numbers(source))
                else:
                    default = re.search(rf"export {variable}=.*:-(\w+)", soak)[1]
                    self.assertEqual(long.split()[0].replace(",", ""), default)

    def test_no_scaled_test_is_missing_in_the_table(self):
        rows = {file for file, _, _ in ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))}
        scaled = {str(path.relative_to(ROOT / "crates")) for path in ROOT.glob("crates/*/tests/**/*.rs")
                  if '"TRIVIUM_SOAK"' in path.read_text(encoding="utf-8")}
        self.assertEqual(scaled - rows, set())


if __name__ == "__main__":
    unittest.main()
