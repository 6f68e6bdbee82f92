"""Tests of compliance.py."""

import unittest
from collections import defaultdict

import compliance
import compliance_text

SOURCE = """---
title: An example
--- middle
# First {#first}

The key words "MUST" and "SHOULD" are to be interpreted as usual.

A sender MUST send
one byte (e.g. Zero). It SHOULD send two. It can send three.

* A receiver MUST NOT
  answer; see {{first}}.

~~~
A figure MUST NOT count.
~~~

## Second

: A REQUIRED value.

--- back
# Third
This MUST NOT count.
"""


class Sentences(unittest.TestCase):
    def test_are_numbered_in_each_section(self):
        found = [(s.section, s.number, s.level, s.text) for s in compliance_text.sentences(SOURCE)]
        self.assertEqual(found, [
            ("1", 1, "MUST", "A sender MUST send one byte (e.g. Zero)."),
            ("1", 2, "SHOULD", "It SHOULD send two."),
            ("1", 3, "MUST", "A receiver MUST NOT answer; see {{first}}."),
            ("1.1", 1, "MUST", "A REQUIRED value."),
        ])

    def test_have_a_checksum_of_their_words(self):
        one, two = (compliance_text.Sentence("1", 1, "MUST", text).digest for text in
                    ("It MUST send; see {{first}}.", "It MUST  send see."))
        self.assertEqual(one, two)


class Citations(unittest.TestCase):
    def test_name_sections_and_sentences(self):
        found = compliance.CITATION.search("(RFC 9000 s.8.2.1 #3 #4, s.14.1 #1; RFC 9001 s.4)")
        self.assertEqual(found[1], "9000")
        parts = compliance.PART.findall(found[2])
        self.assertEqual(parts, [("8.2.1", " #3 #4"), ("14.1", " #1")])

    def test_are_of_a_test_by_path_or_module(self):
        text = "fn code() {}\n#[cfg(test)]\nmod tests {\n}\n"
        self.assertTrue(compliance.is_test("crates/wire/tests/codec/main.rs", "", 0))
        self.assertTrue(compliance.is_test("crates/transport/src/endpoint/tests.rs", "", 0))
        self.assertFalse(compliance.is_test("crates/transport/src/token.rs", text, 0))
        self.assertTrue(compliance.is_test("crates/transport/src/token.rs", text, len(text) - 3))

    def test_that_are_lost_are_found(self):
        known = {rfc: {} for rfc in compliance.RFCS}
        state = {rfc: {} for rfc in compliance.RFCS}
        known["9221"] = {("3", 1): ("MUST", "", ["code", "test"])}
        state["9221"] = {("3", 1): defaultdict(list, code=[("a.rs", 1)], test=[("b.rs", 1)])}
        self.assertEqual(compliance.check(known, state), [])
        del state["9221"]["3", 1]["test"]
        lost = compliance.check(known, state)
        self.assertEqual(lost, ["RFC 9221 s.3 #1: was code test, is code"])


if __name__ == "__main__":
    unittest.main()
