#!/bin/sh
# Builds the documentation as a book in out/book, and checks the links and anchors of its sources
# and pages.
set -eu
cd "$(dirname "$0")/.."
scripts/book.py pages
scripts/book.py words
rm -rf out/book
MDBOOK_LOG=warn RUST_LOG=warn target/tools/bin/mdbook build
[ -e out/book/index.html ] || { echo "book: mdbook has written no out/book/index.html" >&2; exit 1; }
scripts/book.py html out/book
echo "out/book/index.html"
