"""Debian's packages as modifications of documents: each section is an index, each package a document. JSON lines, as ``ldindex bulk`` takes them.

    apt-cache dumpavail > packages
    python examples/debian_packages.py packages | ldindex -c cluster.toml bulk

When the list is a newer one, only what differs is written: other versions are updates, and packages that are gone are deleted.

    python examples/debian_packages.py packages --before packages.old | ldindex -c cluster.toml bulk
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

FIELDS = {
    "Version": "version",
    "Description": "description",
    "Maintainer": "maintainer",
    "Homepage": "homepage",
    "Depends": "depends",
    "Tag": "tags",
}


def paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The packages of a list in the format of Debian's control files."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if not line.strip():
            if found:
                yield found
            found = {}
        elif line[0].isspace():
            found[name] += line.rstrip("\n")
        else:
            name, _, value = line.partition(":")
            found[name] = value.strip()
    if found:
        yield found


def document_of(package: dict[str, str]) -> tuple[str, str, dict[str, Any]]:
    """The index, the id and the contents of a package."""
    index = "debian-" + package.get("Section", "none").replace("/", "-")
    fields = {"name": package["Package"]}
    fields |= {field: package[name] for name, field in FIELDS.items() if name in package}
    size = package.get("Installed-Size", "")
    contents: dict[str, Any] = {"fields": fields, "categories": {"priority": package.get("Priority", "none")}}
    if size.isdecimal():
        contents["variables"] = {"0": float(size)}
    return index, package["Package"], contents


def modifications(
    packages: Iterable[dict[str, str]], before: Iterable[dict[str, str]] = ()
) -> Iterator[dict[str, Any]]:
    """What makes an index of a list, or of an older list one of this list. A package that stands there again is an update."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for package in before:
        index, docid, contents = document_of(package)
        known[index, docid] = contents
    gone = set(known)
    for package in packages:
        index, docid, contents = document_of(package)
        gone.discard((index, docid))
        if known.get((index, docid)) != contents:
            known[index, docid] = contents
            yield {"index": index, "docid": docid, "deleted": True, **contents}  # in place of all that was there
    for index, docid in sorted(gone):
        yield {"index": index, "docid": docid, "deleted": True}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Debian's packages as modifications of documents.")
    parser.add_argument("packages", type=Path, help="a list: apt-cache dumpavail, /var/lib/dpkg/status, Packages")
    parser.add_argument("--before", type=Path, help="the list that was written before")
    given = parser.parse_args(arguments)
    before = [] if given.before is None else paragraphs(given.before.read_text(errors="replace").splitlines())
    with given.packages.open(errors="replace") as lines:
        for each in modifications(paragraphs(lines), before):
            sys.stdout.write(json.dumps(each, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
