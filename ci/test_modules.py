"""The module check must be able to fail: circles of several kinds are made here."""

import tempfile
import unittest
from pathlib import Path

import modules


class Modules(unittest.TestCase):
    def circles(self, **files):
        """The circles of a crate `a` with these files; `__` in a name stands for a folder."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "crates" / "a" / "src"
            for name, text in files.items():
                file = source / (name.replace("__", "/") + ".rs")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return modules.circles(Path(folder))

    def test_downward_imports_pass(self):
        self.assertEqual(self.circles(lib="mod b; mod c; pub use b::B;", b="use crate::c::C;", c="pub struct C;"), [])

    def test_two_that_import_each_other_are_a_circle(self):
        found = self.circles(lib="mod b; mod c;", b="use crate::c::C;", c="use super::b::B;")
        self.assertEqual(found, [("a", ("b.rs", "c.rs"))])

    def test_a_re_export_leads_to_its_source(self):
        found = self.circles(lib="mod b; mod c; pub use b::B; pub use c::C;", b="use crate::{C};", c="fn f(_: crate::B) {}")
        self.assertEqual(found, [("a", ("b.rs", "c.rs"))])

    def test_a_child_that_uses_its_parent_is_a_circle_if_the_parent_uses_it(self):
        found = self.circles(lib="mod b;", b="mod d; const N: u8 = 1; fn f() { d::g() }", b__d="use super::N;")
        self.assertEqual(found, [("a", ("b.rs", "b/d.rs"))])

    def test_comments_strings_and_tests_do_not_count(self):
        c = "// use crate::b::B;\nconst S: &str = \"crate::b::B\";\n#[cfg(test)]\nmod tests { use crate::b::B; }"
        self.assertEqual(self.circles(lib="mod b; mod c;", b="use crate::c::C;", c=c), [])


if __name__ == "__main__":
    unittest.main()
