"""Tests of scripts/prose.py: python3 -m unittest, in this folder."""

import unittest

import prose


def names(text):
    return {name for name, _ in prose.markers(text)}


def found(path, source, kind):
    return [text for text in prose.code_texts(path, source) if text.kind == kind]


class Markers(unittest.TestCase):
    OLD = {
        "The moment of the next event; none: nothing happens.": "None:",
        "Print a line so often.": "so many",
        "A gateway of another release is told of.": "told",
        "Reads until it is not wanted any more.": "any more",
        "waited in vain": "in vain",
        "The TCP beside ours.": "beside",
        "It takes two bytes alone.": "alone",
        "Nobody need call it.": "nobody",
        "It ended. Who comes later waits.": "Who",
        "What brought nothing is in the table below.": "What",
        "Of those two are left.": "Of",
        "True once the thread is to be ended.": "To be",
        "It is not asked, for what comes later has proved more.": ", for",
        "A release that brought an error.": "brought",
        "A bucket goes by the prefix.": "goes by",
        "Whom, until when, the how-manieth.": "how-manieth",
        "dropped, be it that its OFFER has not come": "be it",
        "Ten at the most.": "at the most",
        "Set the variable before it mends that.": "mend",
        "One that is none is none.": "is none",
        "The table is made anew.": "anew",
    }

    def test_markers_are_found_in_old_sentences(self):
        for text, name in self.OLD.items():
            with self.subTest(text):
                self.assertIn(name, names(text))

    def test_markers_are_not_found_in_plain_sentences(self):
        for text in (
            "Returns the time of the next event, or `None` if no event is scheduled.",
            "What if the peer is slow? Then the timer fires.",
            "It reads so many bytes that the buffer is full.",
            "No more than ten, and not any more than that.",
            "Waits for the peer, for at most ten seconds.",
            "The client, for example, sends an Initial.",
            "A list of the frames, as far as possible in order.",
            "Opens any more streams.",
        ):
            with self.subTest(text):
                self.assertEqual(names(text), set())

    def test_marker_is_found_across_a_line_break(self):
        self.assertIn("told", names("A client is\ntold at once."))


class Pages(unittest.TestCase):
    def test_page_code_is_not_counted(self):
        page = "Text.\n\n    beside alone\n\n```sh\nbeside\n```\n\nIn `beside` and [link](beside.md).\n"
        self.assertEqual([names(text.text) for text in prose.page_texts("docs/x.md", page)], [set(), set()])

    def test_page_texts_have_their_lines(self):
        page = "# Title\n\nOne.\nTwo.\n\n* a b\n* c d\n\n| a | b |\n|---|---|\n| e | f |\n"
        lines = [text.line for text in prose.page_texts("docs/x.md", page)]
        self.assertEqual(lines, [1, 3, 6, 7, 9, 11])


class Code(unittest.TestCase):
    RUST = (
        "//! Of those one is left.\n"
        "// A comment over\n// two lines.\n"
        'const URL: &str = "https://example.org/ // not a comment";\n'
        "const QUOTE: char = '\"'; // beside\n"
        'fn f() { bail!("the file {path} is made anew"); }\n'
    )

    def test_rust_comments_and_messages_are_found(self):
        comments = found("crates/a/src/b.rs", self.RUST, "comments")
        self.assertEqual([(text.line, text.size) for text in comments], [(1, 3), (5, 1)])
        messages = found("crates/a/src/b.rs", self.RUST, "messages")
        self.assertEqual([text.text for text in messages], ["the file {path} is made anew"])
        self.assertEqual(messages[0].unit, "crates/a")

    def test_rust_literals_of_tests_are_not_messages(self):
        self.assertEqual(found("crates/a/tests/b.rs", self.RUST, "messages"), [])
        inline = '#[cfg(test)]\nmod tests {\n    fn f() { panic!("this is not a message"); }\n}\n'
        self.assertEqual(found("crates/a/src/b.rs", inline, "messages"), [])

    def test_rust_doc_comments_of_options_are_messages(self):
        source = "#[derive(Args)]\nstruct Run {\n    /// Print a line so often\n    every: u64,\n}\n/// Other.\nfn f() {}\n"
        self.assertEqual([text.text for text in found("crates/a/src/b.rs", source, "messages")], ["Print a line so often"])
        self.assertEqual(len(found("crates/a/src/b.rs", source, "comments")), 1)

    def test_comments_of_other_languages_are_found(self):
        for path, source in {
            "bindings/a.go": 'package a\n\n// beside\nvar x = "// alone"\n',
            "crates/a/bpf/b.h": '/* beside\n */\nchar *x = "/* alone */";\n',
            "scripts/a.py": '#!/usr/bin/env python3\n"""beside"""\nx = "# alone"\n',
            "scripts/a.sh": "#!/bin/sh\n# beside\necho '# alone'\n",
        }.items():
            with self.subTest(path):
                comments = found(path, source, "comments")
                self.assertEqual([names(text.text) for text in comments], [{"beside"}])


class Limits(unittest.TestCase):
    def setUp(self):
        self.counts = {"comments": {"crates/a": 11}, "pages": {"docs/a.md": 16}, "messages": {"crates/a": 1}}
        self.sizes = {"comments": {"crates/a": 1000}, "pages": {"docs/a.md": 10_000}, "messages": {"crates/a": 100}}

    def test_limit_is_enforced(self):
        failed = [(kind, most) for kind, _, _, most in prose.exceeding(self.counts, self.sizes, {})]
        self.assertEqual(failed, [("comments", 10), ("pages", 15), ("messages", 0)])

    def test_baseline_permits_no_increase(self):
        self.assertEqual(list(prose.exceeding(self.counts, self.sizes, self.counts)), [])
        self.counts["pages"]["docs/a.md"] += 1
        baseline = {"comments": {"crates/a": 11}, "pages": {"docs/a.md": 16}, "messages": {"crates/a": 1}}
        self.assertEqual([row[0] for row in prose.exceeding(self.counts, self.sizes, baseline)], ["pages"])

    def test_update_only_lowers_the_baseline(self):
        baseline = {"comments": {"crates/a": 20}, "pages": {"docs/a.md": 3}, "messages": {}}
        new = prose.lowered(self.counts, self.sizes, baseline)
        self.assertEqual(new, {"comments": {"crates/a": 11}, "pages": {"docs/a.md": 3}, "messages": {}})

    def test_update_without_a_baseline_takes_the_counts(self):
        self.assertEqual(prose.lowered(self.counts, self.sizes, None), self.counts)


class Context(unittest.TestCase):
    ROWS = ["# Page", "", "## Part", "", "| name | unit |", "|---|---|", "| a | s |", "| b | m |"]

    def test_context_of_a_row_is_heading_and_table_header(self):
        self.assertEqual(prose.context(self.ROWS, 7), ["## Part", "| name | unit |"])

    def test_context_of_a_text_is_the_heading_above(self):
        self.assertEqual(prose.context(self.ROWS, 4), ["## Part"])
        self.assertEqual(prose.context(["text"], 0), [])


if __name__ == "__main__":
    unittest.main()
