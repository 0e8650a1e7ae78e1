"""A class is found by its name alone."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "logdevice_py",
    "client",
    "epoch_store",
    "sequencer",
    "storage_node",
    "streams",
    "ldquery",
    "server",
    "indexlog",
    "benchmarks",
)


_CLASS = re.compile(r"^[ ]*class ([A-Za-z]\w*)", re.MULTILINE)


def _classes(folder: str) -> list[tuple[str, str]]:
    return [
        (found[1], f"{path.relative_to(ROOT)}:{source.count(chr(10), 0, found.start()) + 1}")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for source in (path.read_text(),)
        for found in _CLASS.finditer(source)
    ]


def test_class_names_are_unique() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for name, where in _classes(package):
            places[name].append(where)
    assert places
    # fakes and benches of one test file may share names with another's, but never with the product
    for name, where in _classes("tests"):
        if name in places:
            places[name].append(where)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
