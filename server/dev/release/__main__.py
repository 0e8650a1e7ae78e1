"""``python -m server.dev.release``: build what is published, from the files of HEAD, into a directory.

``build`` builds once. ``check`` builds twice, in different directories, and compares: equal sources give equal files.
``lock`` renders conf/debian/wheels.txt anew."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from server.dev.release import wheels
from server.dev.release.checks import check_manifests, check_unit, manifests
from server.dev.release.debian import build_package
from server.dev.release.image import debian_packages, file_system, write_image
from server.dev.release.materials import bill_of_materials
from server.dev.release.source import ROOT, SourceOfRelease, changes, export, head

SUMS: Final = "SHA256SUMS"
_TOOLS: Final = {
    "dpkg-deb": "dpkg",
    "mmdebstrap": "mmdebstrap",
}
"""Programs that build, and Debian's packages of them."""


def build(commit: str, into: Path, *, image: bool) -> dict[str, str]:
    """Build everything from a commit into a directory, which is emptied before; the SHA-256 of each file by its name."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="logdevice-release-") as scratch:
        _build(commit, Path(scratch), into, image=image)
    sums = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(into.iterdir())}
    (into / SUMS).write_text("".join(f"{each}  {name}\n" for name, each in sums.items()))
    return sums


def _build(commit: str, scratch: Path, into: Path, *, image: bool) -> None:
    (scratch / "source").mkdir()
    source = export(commit, scratch / "source")
    print(check_manifests(source), flush=True)
    ours = wheels.build_distributions(source, into)
    (scratch / "wheels").mkdir()
    others = wheels.fetch(source, scratch / "wheels")
    package = build_package(source, [*others, ours], scratch, into)
    print(check_unit(source.conf("systemd", "logdeviced@.service"), scratch / "package"), flush=True)
    _write_manifests(source, into)
    debian: Sequence[tuple[str, str, str]] = ()
    if image:
        archive = file_system(source, package, scratch)
        write_image(source, archive, into)
        debian = debian_packages(archive)
    bill = bill_of_materials(source, others, debian)
    (into / f"logdevice-py-{source.version}.cdx.json").write_text(bill)
    for each in into.iterdir():
        os.utime(each, (source.epoch, source.epoch))


def _write_manifests(source: SourceOfRelease, into: Path) -> None:
    text = "".join(f"---\n{path.read_text()}" for path in manifests(source))
    target = into / f"logdevice-py-{source.version}-kubernetes.yaml"
    target.write_text(text.replace("logdevice-py:VERSION", f"logdevice-py:{source.version}"))


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m server.dev.release", description=__doc__)
    parser.add_argument("verb", choices=("build", "check", "lock"))
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="DIR", help="(default: dist)")
    parser.add_argument("--no-image", action="store_true", help="leave out the image: it needs root and some minutes")
    arguments = parser.parse_args(argv)
    os.umask(0o022)
    if arguments.verb == "lock":
        text = wheels.lock(SourceOfRelease(ROOT, commit="", epoch=0))
        (ROOT / "conf" / "debian" / wheels.LOCK).write_text(text)
        return 0
    missing = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if arguments.no_image:
        missing.discard("mmdebstrap")
    if missing:
        print(f"missing programs: apt-get install {' '.join(sorted(missing))} (or --no-image)", file=sys.stderr)
        return 1
    if dirty := changes():
        print(f"not committed, and therefore not in what is built: {', '.join(line[3:] for line in dirty)}", flush=True)
    commit = head()
    sums = build(commit, arguments.into, image=not arguments.no_image)
    for name, digest in sums.items():
        print(digest, f"{(arguments.into / name).stat().st_size:>12,}", name)
    if arguments.verb == "check":
        return _compare(commit, sums, image=not arguments.no_image)
    return 0


def _compare(commit: str, first: dict[str, str], *, image: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="logdevice-release-again-") as directory:
        second = build(commit, Path(directory, "another", "place"), image=image)
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differing:
        print(f"built twice, these differ: {', '.join(differing)}", file=sys.stderr)
        return 1
    print(f"built twice, all {len(first)} files are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
