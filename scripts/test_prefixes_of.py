"""Tests of scripts/prefixes-of: python3 -m unittest, in this folder."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SCRIPT = pathlib.Path(__file__).with_name("prefixes-of")


def load():
    loader = importlib.machinery.SourceFileLoader("prefixes_of", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("prefixes_of", loader))
    loader.exec_module(module)
    return module


prefixes_of = load()

IPTOASN = """\
1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET
1.0.1.0\t1.0.3.255\t0\tNone\tNot routed
1.0.4.0\t1.0.7.255\t38803\tAU\tWPL-AS-AP Wirefreebroadband
192.0.2.5\t192.0.2.10\t64500\tXX\tSomebody | with, signs "
2001:db8::\t2001:db8:0:2:ffff:ffff:ffff:ffff\t64500\tXX\tSomebody
"""

BLOCKS = (
    "network,autonomous_system_number,autonomous_system_organization\r\n"
    '192.0.2.0/25,64500,"Some, Body ""Inc."""\r\n'
    "192.0.2.128/25,64500,Somebody\r\n"
    "198.51.100.0/24,64501,Other\r\n"
    "203.0.113.0/24,,\r\n"
)

COUNTRIES = """\
network,geoname_id,registered_country_geoname_id,represented_country_geoname_id,is_anonymous_proxy,x
192.0.2.0/24,2921044,2921044,,0,0
198.51.100.0/24,,6252001,,0,0
203.0.113.0/24,,,,0,0
"""

LOCATIONS = """\
geoname_id,locale_code,continent_code,continent_name,country_iso_code,country_name,is_in_european_union
2921044,en,EU,Europe,DE,Germany,1
6252001,en,NA,"North America",US,"United States",0
6255148,en,EU,Europe,,,0
"""

DELEGATED = """\
2|ripencc|1700000000|3|19830705|20231114|+0100
# a comment
ripencc|*|ipv4|*|2|summary
ripencc|DE|ipv4|192.0.2.0|384|20000101|allocated|some-id
ripencc|FR|ipv4|198.51.100.0|256|20000101|assigned|other-id
ripencc|DE|ipv6|2001:db8::|32|20000101|allocated|some-id
ripencc|DE|asn|64500|1|20000101|allocated|some-id
ripencc||ipv4|203.0.113.0|256||available|
"""

ONE = ["--asn", "64500"]


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def run_with(self, options, text, locations=None):
        """Returns the exit status, the lines on standard output, and standard error."""
        table = self.file("table", text)
        if locations is not None:
            options = [*options, "--locations", self.file("locations", locations)]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = prefixes_of.main([*options, table])
        return status, out.getvalue().splitlines(), err.getvalue().replace(f"{self.folder}/", "")

    def nets(self, options, text, locations=None):
        status, lines, errors = self.run_with(options, text, locations)
        self.assertEqual((status, errors), (0, ""))
        self.assertTrue(lines[0].startswith("# Prefixes of "), lines[0])
        return lines[1:]

    def refused(self, options, text, locations=None):
        status, lines, errors = self.run_with(options, text, locations)
        self.assertEqual((status, lines), (1, []), "nothing is written")
        first, _, rest = errors.partition("\n")
        self.assertEqual(first, "prefixes-of: nothing was written")
        return rest

    def test_table_formats_are_read(self):
        somebody = [
            "192.0.2.5/32",
            "192.0.2.6/31",
            "192.0.2.8/31",
            "192.0.2.10/32",
            "2001:db8::/63",
            "2001:db8:0:2::/64",
        ]
        self.assertEqual(self.nets(ONE, IPTOASN), somebody)
        self.assertEqual(self.nets(["--asn", "as64500"], IPTOASN), somebody)
        self.assertEqual(self.nets(["--country", "xx"], IPTOASN), somebody)
        both = ["--asn", "13335", "--country", "AU"]
        self.assertEqual(self.nets(both, IPTOASN), ["1.0.0.0/24", "1.0.4.0/22"])
        # The first row may have no country.
        unrouted = "1.0.1.0\t1.0.3.255\t0\tNone\tNot routed\n" + IPTOASN
        self.assertEqual(self.nets(["--country", "AU"], unrouted), ["1.0.4.0/22"])
        # Adjacent prefixes are merged.
        self.assertEqual(self.nets(ONE, BLOCKS), ["192.0.2.0/24"])
        germany = ["--country", "DE"]
        self.assertEqual(
            self.nets(germany, DELEGATED), ["192.0.2.0/24", "192.0.3.0/25", "2001:db8::/32"]
        )
        dbip = "1.0.0.0,1.0.0.255,AU\n2001:db8::,2001:db8::ffff,DE\n"
        self.assertEqual(self.nets(germany, dbip), ["2001:db8::/112"])
        # IPv4-mapped addresses are merged with the IPv4 addresses that they mean.
        mapped = "::ffff:1.0.0.0,::ffff:1.0.0.255,AU\n1.0.1.0,1.0.1.255,AU\n"
        self.assertEqual(self.nets(["--country", "AU"], mapped), ["1.0.0.0/23"])
        dbip = '"1.0.0.0","1.0.0.255","64500","Somebody, Inc."\n'
        self.assertEqual(self.nets(ONE, dbip), ["1.0.0.0/24"])
        ipinfo = "start_ip,end_ip,country,asn\n192.0.2.0,192.0.2.255,DE,AS64500\n"
        self.assertEqual(self.nets([*ONE, "--country", "FR"], ipinfo), ["192.0.2.0/24"])

    def test_tables_are_merged(self):
        v4 = self.file("v4", "network,asn\n192.0.2.0/25,64500\n")
        v6 = self.file("v6", "network,asn\n192.0.2.128/25,64500\n2001:db8::/32,64500\n")
        out = self.folder / "list"
        self.assertEqual(prefixes_of.main([*ONE, "--out", str(out), v4, v6]), 0)
        self.assertEqual(
            out.read_text(), "# Prefixes of AS64500\n192.0.2.0/24\n2001:db8::/32\n"
        )
        self.assertEqual(sorted(os.listdir(self.folder)), ["list", "v4", "v6"])

    def test_list_is_kept_if_a_table_is_invalid(self):
        out = self.file("list", "old\n")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            missing = prefixes_of.main([*ONE, "--out", out, str(self.folder / "missing")])
            wrong = prefixes_of.main([*ONE, "--out", out, self.file("table", "nonsense\n")])
        self.assertEqual((missing, wrong, pathlib.Path(out).read_text()), (1, 1, "old\n"))
        self.assertIn("missing", errors.getvalue())

    def test_country_by_location(self):
        def of(code):
            return self.nets(["--country", code], COUNTRIES, LOCATIONS)

        self.assertEqual(of("DE"), ["192.0.2.0/24"])
        self.assertEqual(of("US"), ["198.51.100.0/24"], "where it is registered")
        none = self.refused(["--country", "FR"], COUNTRIES, LOCATIONS)
        self.assertIn("no prefix of FR", none)
        self.assertIn("set --locations", self.refused(["--country", "DE"], COUNTRIES))
        wrong = self.refused(["--country", "DE"], COUNTRIES, "id,code\n1,DE\n")
        self.assertIn("locations:1: the file has no header with the columns `geoname_id`", wrong)

    def test_table_errors_name_the_line(self):
        cases = [
            ("", 0, "no prefix of AS64500"),
            ("192.0.2.0/24\n", 1, "unknown format of the prefix table"),
            ("network,country\n192.0.2.0/24,DE\n", 1, "the table has no column of AS numbers"),
            (DELEGATED, 1, "the table has no column of AS numbers"),
            ("network,asn\n192.0.2.0/24,1\nnonsense,64500\n", 3, "`nonsense`"),
            ("network,asn\n192.0.2.1/24,1\n", 2, "bits after the first 24 are set"),
            ("network,asn\n192.0.2.0/255.255.255.0,1\n", 2, "is not an address or prefix"),
            ("network,asn\nfe80::1%eth0,1\n", 2, "is not an address or prefix"),
            ("network,asn\n192.0.2.0/24,x\n", 2, "`x` is not an AS number"),
            ("network,asn\n192.0.2.0/24,4294967296\n", 2, "is not an AS number"),
            ("network,asn\n192.0.2.0/24\n", 2, "has 1 columns, but needs at least 2"),
            ('network,asn\n"192.0.2.0/24,64500\n', 2, "an opening quote without a closing quote"),
            (
                'network,asn\n"192.0.2.0/24"x,64500\n',
                2,
                "between a closing quote and the next separator",
            ),
            ("192.0.2.0\t192.0.2.9\t64500\n192.0.2.9\t192.0.2.0\t1\n", 2, "is not a valid range"),
            ("192.0.2.0\t192.0.2.9\t64500\n192.0.2.9\t2001:db8::\t1\n", 2, "is not a valid range"),
            ("network,asn\n192.0.2.0/24,64501\n", 0, "no prefix of AS64500"),
        ]
        for text, line, said in cases:
            with self.subTest(text):
                error = self.refused(ONE, text)
                self.assertTrue(error.startswith(f"table:{line}: " if line else "table: "), error)
                self.assertIn(said, error)
        for row, said in [
            ("r|DE|ipv4|192.0.2.0|0|", "`0` is not a valid number of addresses"),
            ("r|DE|ipv4|255.255.255.0|257|", "`257` is not a valid number of addresses"),
            ("r|DE|ipv6|2001:db8::|129|", "2001:db8::/129"),
            ("r|DE|ipv4|2001:db8::|32|", "`2001:db8::` is not ipv4"),
        ]:
            with self.subTest(row):
                error = self.refused(["--country", "DE"], f"2|ripencc|1\n{row}\n")
                self.assertTrue(error.startswith("table:2: "), error)
                self.assertIn(said, error)

    def test_table_that_is_hostile_takes_limited_memory(self):
        long = "x" * (prefixes_of.LONGEST_LINE + 1)
        for length in (1, 2, 3, prefixes_of.LONGEST_LINE, 3 * prefixes_of.LONGEST_LINE):
            text = f"network,asn\n{long}{'x' * length}\n192.0.2.0/24,x\n"
            error = self.refused(ONE, text)
            self.assertIn("table:2: the line is longer than", error)
            self.assertIn("table:3: `x` is not an AS number", error)
        wide = "network,asn\n" + "," * prefixes_of.COLUMNS + "\n"
        self.assertIn("more than 64 columns", self.refused(ONE, wide))
        # Reading stops after a thousand bad lines.
        bad = "network,asn\n" + "bad,1\n" * 50_000
        self.assertEqual(len(self.refused(ONE, bad).splitlines()), prefixes_of.BAD)
        garbage = self.refused(ONE, b"network,asn\n\xff\xfe,1\n")
        self.assertIn("table:2: the line is not UTF-8", garbage)
        with mock.patch.object(prefixes_of, "MOST", 100):
            # This range consists of 254 prefixes.
            row = "::1\tffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe\t64500\n"
            self.assertIn("more than 100 prefixes are selected", self.refused(ONE, row))
            many = "network,asn\n" + "192.0.2.0/24,64500\n" * 102
            error = self.refused(ONE, many)
            self.assertTrue(error.startswith("table:102: more than 100 prefixes"), error)

    def test_mapped_range_must_not_cover_all_ipv4_addresses(self):
        def row(first, last):
            return f"{first}\t{last}\t64500\tXX\tA\n"

        whole = self.refused(ONE, row("::ffff:0.0.0.0", "::ffff:255.255.255.255"))
        self.assertIn("0.0.0.0/0", whole)
        self.assertIn("0.0.0.0/0", self.refused(ONE, "network,asn\n::ffff:0:0/96,64500\n"))
        part = row("::ffff:192.0.2.0", "::ffff:192.0.2.255")
        self.assertEqual(self.nets(ONE, part), ["192.0.2.0/24"])
        # The gateway would not read a prefix like ::fffe:0:0/95, and would read ::ffff:0:0/112 as
        # IPv4 addresses.
        around = row("::fffe:0:0", "::ffff:ffff:ffff")
        self.assertEqual(self.nets(ONE, around), ["::fffe:0:0/96"])
        into = row("::fffe:ffff:0", "::ffff:0.0.255.255")
        self.assertEqual(self.nets(ONE, into), ["::fffe:ffff:0/112"])
        everything = row("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
        self.assertEqual(self.nets(ONE, everything), ["::/0"])

    def test_table_may_begin_with_a_byte_order_mark(self):
        self.assertEqual(self.nets(ONE, b"\xef\xbb\xbf" + BLOCKS.encode()), ["192.0.2.0/24"])

    def test_arguments_are_validated(self):
        table = self.file("table", BLOCKS)
        for arguments, said in [
            ([table], "name at least one --asn or --country"),
            (["--country", "Germany", table], "`Germany` is not a country code"),
            (["--asn", "-1", table], "--asn"),
            (["--asn", "x", table], "`x` is not an AS number"),
            (ONE, "TABLE"),
        ]:
            with self.subTest(arguments):
                ended = subprocess.run(
                    [sys.executable, SCRIPT, *arguments], capture_output=True, text=True
                )
                self.assertEqual((ended.returncode, ended.stdout), (2, ""))
                self.assertIn(said, ended.stderr)
        ended = subprocess.run([SCRIPT, *ONE, table], capture_output=True, text=True, check=True)
        self.assertEqual(ended.stdout, "# Prefixes of AS64500\n192.0.2.0/24\n")


if __name__ == "__main__":
    unittest.main()
