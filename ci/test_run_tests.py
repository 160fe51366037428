"""A test that fails must fail the run, and be seen; programs must run beside each other."""

import json
import os
import time
import tempfile
import unittest
from pathlib import Path

import run_tests
from run_tests import Program
from totals import Totals


def artifact(name, executable="/nowhere/x", test=True, crate="switch"):
    return json.dumps({"reason": "compiler-artifact", "profile": {"test": test}, "executable": executable,
                       "manifest_path": f"/src/crates/{crate}/Cargo.toml", "target": {"name": name}})


class RunTests(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def program(self, name, script):
        path = Path(self.directory.name) / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return Program(str(path), self.directory.name, name)

    def test_only_test_programs_are_run_and_daemons_first(self):
        lines = [artifact("rules"), artifact("lib", test=False), artifact("none", executable=None), "warning: text",
                 json.dumps({"reason": "build-finished"}), artifact("live", crate="daemon")]
        self.assertEqual([program.name for program in run_tests.programs(lines)], ["daemon/live", "switch/rules"])

    def test_what_fails_is_told_and_shown(self):
        shown = []
        good, bad = self.program("good", "exit 0"), self.program("bad", "echo why; echo more >&2; exit 3")
        failed = run_tests.run_all([good, bad], [], 2, shown.append)
        self.assertEqual([(one.program.name, one.status) for one in failed], [("bad", 3)])
        self.assertTrue(any("why\nmore" in text for text in shown), shown)

    def test_arguments_and_directory_are_theirs(self):
        outcome = run_tests.run(self.program("tells", 'echo "$PWD $CARGO_MANIFEST_DIR $1"'), ["--ignored"])
        self.assertEqual(outcome.said.split(), [self.directory.name, self.directory.name, "--ignored"])

    def test_what_hangs_is_ended(self):
        # With what it has started: in its process group, and as a daemon of its own session.
        name = "600." + str(os.getpid())
        hangs = self.program("hangs", f"sleep {name} & setsid sleep {name} & echo begun; sleep {name}")
        outcome = run_tests.run(hangs, [], 2)
        self.assertIn("no end", outcome.status)
        self.assertEqual(outcome.said.strip(), "begun")
        # A process that was killed is there until the kernel has taken it apart.
        def left():
            return [path for path in Path("/proc").glob("[0-9]*/cmdline") if name.encode() in path.read_bytes()]

        deadline = time.monotonic() + 10
        while left() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(left(), [])
        self.assertEqual(outcome.totals().failed, 1)

    def test_what_is_skipped_is_named_and_counted(self):
        script = 'printf "a::b\\tneeds root\\n" >>"$TRIVIUM_SKIP_RECORD"; echo "test c ... ignored, for the soak"; ' \
            'echo "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s"'
        counts = Totals()
        run_tests.run_all([self.program("some", script)], [], 1, lambda text: None, counts)
        self.assertEqual((counts.passed, counts.failed), (4, 0))
        self.assertEqual(sorted(counts.skipped),
                         [("some: a::b", "needs root"), ("some: c", "ignored: for the soak")])

    def test_failures_of_all_kinds_are_counted(self):
        result = 'echo "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out"; exit 101'
        counts = Totals()
        both = [self.program("fails", result), self.program("dies", "kill -9 $$")]
        run_tests.run_all(both, [], 1, lambda text: None, counts)
        self.assertEqual((counts.passed, counts.failed), (3, 3))

    def test_a_killed_program_has_failed(self):
        self.assertEqual(len(run_tests.run_all([self.program("dies", "kill -9 $$")], [], 1, lambda text: None)), 1)

    def test_programs_run_beside_each_other(self):
        # Each ends well only when the other has begun.
        meet = "touch {0}; for i in $(seq 200); do [ -e {1} ] && exit 0; sleep 0.1; done; exit 1"
        pair = [self.program("one", meet.format("a", "b")), self.program("other", meet.format("b", "a"))]
        self.assertEqual(run_tests.run_all(pair, [], 2, lambda text: None), [])


if __name__ == "__main__":
    unittest.main()
