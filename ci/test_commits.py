"""The check of commit messages must be able to fail: each rule is broken once here."""

import unittest

import commits

GOOD = "netlink: Walk all routes once\n\nEach object walked all routes.\n"


class Commits(unittest.TestCase):
    def assert_one(self, message, part):
        found = commits.mistakes(message)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_a_good_message_passes(self):
        self.assertEqual(commits.mistakes(GOOD), [])
        self.assertEqual(commits.mistakes(GOOD + "# a comment of git that is much longer than seventy-two columns, and goes away\n"), [])
        self.assertEqual(commits.mistakes("daemon, port: Pass the namespace on\n\nWhy.\n"), [])

    def test_each_rule(self):
        self.assert_one(GOOD.replace("Walk", "Walk " + "far " * 20), "columns")
        self.assert_one(GOOD.replace("netlink: ", ""), "area: Summary")
        for summary in ("a device comes back", "Walks all routes once", "Walked all routes", "what it says"):
            self.assert_one(GOOD.replace("Walk all routes once", summary), "no imperative")
        self.assert_one(GOOD.replace("once\n", "once.\n"), "full stop")
        self.assert_one("netlink: Walk all routes once\n", "body is missing")
        self.assert_one(GOOD.replace("\n\n", "\n") + "\nWhy.\n", "empty line")
        self.assert_one(GOOD + "word " * 20 + "\n", "line 4")


if __name__ == "__main__":
    unittest.main()
