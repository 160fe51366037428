"""The link check must be able to fail: each rule is broken once here."""

import unittest

import links


class Links(unittest.TestCase):
    def reasons(self, pages):
        return [why for hits in links.places(set(pages), pages.get).values() for _, why in hits]

    def test_links_to_files_folders_and_headings_pass(self):
        pages = {
            "README.md": "[a](docs/a.md), [b](docs/a.md#two-words), [c](docs), [d](#top), ![e](docs/e.svg)\n# Top\n",
            "docs/a.md": '## Two words\n[up](../README.md#top "title")\n[name]: e.svg\n',
            "docs/e.svg": "",
        }
        self.assertEqual(self.reasons(pages), [])

    def test_a_link_to_a_missing_file_is_found(self):
        for text in ("[a](b.md)", "![a](b.svg)", "[a](../b.md)", "[a](/b.md)", "[a]: b.md", "| [`a`](b.md) |"):
            self.assertEqual(len(self.reasons({"a.md": text + "\n"})), 1, text)

    def test_a_link_to_a_missing_heading_is_found(self):
        pages = {"a.md": "[a](#one), [b](b.md#two), [c](b.md#three)\n", "b.md": "# Three\n"}
        self.assertEqual(len(self.reasons(pages)), 2)

    def test_other_sites_and_code_are_not_checked(self):
        text = "[a](https://example.com/b.md)\n`[a](b.md)`\n```\n[a](b.md)\n# Not a heading\n```\n[b](mailto:a@b.c)\n"
        self.assertEqual(self.reasons({"a.md": text}), [])
        self.assertEqual(len(self.reasons({"a.md": text + "[c](#not-a-heading)\n"})), 1)

    def test_identifiers_of_headings_are_those_of_github_and_mdbook(self):
        for heading, identifier in (
            ("Two Words", "two-words"),
            ("`trivium show why`, and more", "trivium-show-why-and-more"),
            ("The [hook](xdp.md): `[xdp]`", "the-hook-xdp"),
            ("ovs-appctl & a_b (1.5)", "ovs-appctl--a_b-15"),
        ):
            self.assertEqual(links.slug(heading), identifier)

    def test_repeated_headings_have_numbers(self):
        self.assertEqual(links.anchors("# A\n## A\n### A ###\n"), {"a", "a-1", "a-2"})

    def test_a_page_that_the_book_does_not_list_is_found(self):
        pages = {"docs/SUMMARY.md": "- [A](a.md)\n", "docs/a.md": "", "docs/b/c.md": "", "README.md": ""}
        self.assertEqual(self.reasons(pages), ["docs/SUMMARY.md does not list this page"])

    def test_an_identifier_in_html_is_an_anchor(self):
        self.assertEqual(self.reasons({"a.md": '<a id="here"></a>\n[a](#here)\n'}), [])


if __name__ == "__main__":
    unittest.main()
