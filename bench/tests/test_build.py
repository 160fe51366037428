"""Pages name the build of their rows, and rows of another build do not get into them."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from rig import build, cli, pages
from rig.system import BenchError


class Seal(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.binary = self.directory / "trivium"
        self.binary.write_bytes(b"one build")
        patch = mock.patch.object(build, "binary", lambda: self.binary)
        patch.start()
        self.addCleanup(patch.stop)
        self.noted = build.begin("switch", ["--rounds", "3"])

    def kept(self, results: dict) -> Path:
        path = self.directory / "results.json"
        path.write_text(json.dumps(results, indent=1), encoding="utf-8")
        return path

    def test_results_are_read_as_their_run_left_them(self):
        sealed = build.seal({"values": {"emc": {"": {"mpps": [1.5, 2.25]}}}, "sizes": (64, 128)}, self.noted)
        self.assertEqual(build.read(self.kept(sealed)), sealed)
        line = build.line(sealed)
        self.assertIn(self.noted["commit"], line)
        self.assertIn(build.digest(self.binary)[:16], line)
        self.assertIn("one run of `bench/switch --rounds 3`", line)

    def test_a_row_of_another_run_is_refused(self):
        sealed = build.seal({"values": {"emc": {"": {"mpps": [1.5]}}}}, self.noted)
        sealed["values"]["paper-null"] = {"": {"mpps": [58.1]}}
        with self.assertRaisesRegex(BenchError, "not as their run left them"):
            build.read(self.kept(sealed))
        sealed = build.seal({"values": {}}, self.noted)
        sealed["run"]["commit"] = "another"
        with self.assertRaisesRegex(BenchError, "not as their run left them"):
            build.read(self.kept(sealed))

    def test_a_run_ends_where_the_binary_is_built_anew(self):
        build.check(self.noted)
        self.binary.write_bytes(b"another build")
        with self.assertRaisesRegex(BenchError, "two builds do not go into one page"):
            build.seal({"values": {}}, self.noted)

    def test_results_without_a_seal_are_said_to_be_of_unknown_builds(self):
        self.assertIn("The build is unknown", build.line(build.read(self.kept({"values": {}}))))


class Pages(unittest.TestCase):
    def test_each_page_is_what_its_results_give_and_names_its_build_and_command(self):
        for name, (module, _) in pages.PAGES.items():
            found = pages.results(name)
            for file, text in module.pages(found).items():
                written = (cli.ROOT / "docs" / file).read_text(encoding="utf-8")
                self.assertEqual(written, text, f"docs/{file} was edited by hand; `bench/all --report` writes it")
                if file.endswith(".md"):
                    self.assertIn(build.line(found), text)
                    self.assertIn(f"bench/{name} ", text)


if __name__ == "__main__":
    unittest.main()
