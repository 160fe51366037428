"""The floors check must be able to fail: each rule is broken once here."""

import unittest

import floors


def workspace(*imports, members=None):
    """Metadata of a workspace: imports are (from, to) or (from, to, kind)."""
    imports = [entry if len(entry) == 3 else (*entry, None) for entry in imports]
    names = sorted({name for a, b, _ in imports for name in (a, b)})
    members = [name for name in names if name in floors.FLOORS] if members is None else members
    nodes = []
    for name in names:
        deps = {}
        for source, target, kind in imports:
            if source == name:
                deps.setdefault(target, []).append({"kind": kind})
        nodes.append({"id": name, "deps": [{"pkg": target, "dep_kinds": kinds} for target, kinds in deps.items()]})
    return {
        "packages": [{"id": name, "name": name} for name in names],
        "workspace_members": members,
        "resolve": {"nodes": nodes},
    }


class Floors(unittest.TestCase):
    def assert_one(self, metadata, part):
        found = floors.violations(metadata)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_downward_is_allowed(self):
        good = workspace(("daemon", "control"), ("control", "model"), ("engine", "switch"), ("switch", "packet"))
        self.assertEqual(floors.violations(good), [])

    def test_upward_is_found(self):
        self.assert_one(workspace(("packet", "switch")), "upward")

    def test_sideways_is_found(self):
        self.assert_one(workspace(("port", "xdp")), "sideways")

    def test_build_dependencies_count(self):
        self.assert_one(workspace(("packet", "model", "build")), "upward")

    def test_dev_dependencies_may_look_up(self):
        self.assertEqual(floors.violations(workspace(("engine", "testbed", "dev"))), [])

    def test_unknown_crate_is_found(self):
        self.assert_one(workspace(("misc", "packet"), members=["misc", "packet"]), "no floor")

    def test_engine_reaches_tokio_through_another(self):
        self.assert_one(workspace(("engine", "h2"), ("h2", "tokio")), "engine -> h2 -> tokio")

    def test_data_path_tests_do_not_use_tokio(self):
        self.assert_one(workspace(("port", "tokio", "dev")), "tests use tokio")

    def test_control_reaches_engine_through_another(self):
        found = floors.violations(workspace(("control", "glue"), ("glue", "engine"), members=["control", "engine"]))
        self.assertEqual(found, ["control -> glue -> engine: control speaks to the data path through its own trait"])

    def test_control_does_not_import_port(self):
        self.assert_one(workspace(("control", "port")), "control -> port")

    def test_control_may_use_tokio(self):
        self.assertEqual(floors.violations(workspace(("control", "tokio"))), [])


if __name__ == "__main__":
    unittest.main()
