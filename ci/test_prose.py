"""The prose check must be able to fail: each rule is broken once here."""

import unittest

import prose


class Prose(unittest.TestCase):
    def reasons(self, text):
        return [why for _, why in prose.in_source(text)]

    def test_plain_comments_pass(self):
        self.assertEqual(self.reasons('/// Returns the number of frames.\nfn f() {}\n// Frames of `nobody` do not count.\n'), [])

    def test_words_without_a_subject_are_found(self):
        self.assertEqual(len(self.reasons("// Somebody opens it anew.\n")), 2)

    def test_a_doc_comment_begins_with_its_subject(self):
        for words in ("Those that are there.", "It goes.", "What it is.", "Of IPv4.", "The same of IPv6."):
            self.assertEqual(len(self.reasons(f"/// {words}\n")), 1, words)
        # Not in a second line, in a link, or in a plain comment.
        for text in ("/// A table.\n/// It grows.\n", "/// The same as [`f`], for IPv6.\n", "// It grows.\n"):
            self.assertEqual(self.reasons(text), [], text)

    def test_a_second_paragraph_begins_with_its_subject_too(self):
        self.assertEqual(len(self.reasons("/// A table.\n///\n/// It grows.\n")), 1)

    def test_long_lines_are_found_but_not_in_examples(self):
        long = "/// " + "word " * 30
        self.assertEqual(len(self.reasons(long + "\n")), 1)
        self.assertEqual(self.reasons("/// ```\n" + long + "\n/// ```\n"), [])

    def test_pages(self):
        self.assertEqual(len(prose.in_page("Nobody asks.\n" + "word " * 30 + "\n| " + "word " * 30 + "|\n")), 2)
        self.assertEqual(prose.in_page("```\nnobody\n```\n"), [])

    def test_quotations_are_not_checked(self):
        self.assertEqual(prose.in_page("> Nobody asks.\n"), [])


if __name__ == "__main__":
    unittest.main()
