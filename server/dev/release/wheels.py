"""Our wheel and source distribution, and the wheels of others that packages bring along, in the versions of conf/debian/wheels.txt."""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from server.dev.release.source import SourceOfRelease

LOCK: Final = "wheels.txt"
EXTRAS: Final = ("server", "query", "security")
"""Of the Debian package and the image."""
_TARGET: Final = (
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    *(f"--platform=manylinux{each}_x86_64" for each in ("2014", "_2_17", "_2_28")),
)
_LOCK_HEAD: Final = """\
# What the Debian package brings from PyPI: its extras server, query and security, for Python 3.11 on x86-64.
# Rendered by python -m server.dev.release lock; each file is refused unless it has the hash that stands here.
"""


def build_distributions(source: SourceOfRelease, into: Path) -> Path:
    """The wheel and the source distribution; the wheel."""
    source.run(sys.executable, "-P", "-m", "hatchling", "build", "-d", into)
    (wheel,) = into.glob("*.whl")
    return wheel


def lock(source: SourceOfRelease) -> str:
    """Text of the file of versions: the newest ones that there are."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        source.run(
            sys.executable, "-P", "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", *_TARGET,
            "--target", scratch, "--report", report, *source.requirements(*EXTRAS),
        )  # fmt: skip
        found = json.loads(report.read_text())["install"]
    lines = sorted(
        f"{each['metadata']['name'].lower()}=={each['metadata']['version']} "
        f"--hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in found
    )
    return _LOCK_HEAD + "\n".join(lines) + "\n"


def fetch(source: SourceOfRelease, into: Path) -> list[Path]:
    """The wheels of others, each as its hash says, in the order of their names."""
    source.run(
        sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", *_TARGET,
        "--dest", into, "--requirement", source.conf("debian", LOCK),
    )  # fmt: skip
    return sorted(into.glob("*.whl"))


def unpack(wheel: Path, packages: Path) -> None:
    """Put what a wheel brings into a directory of packages; scripts are left out.

    The path of each file is checked: a wheel is no reason to write elsewhere.
    """
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.infolist():
            parts = Path(each.filename).parts
            if parts and parts[0].endswith(".data"):
                if parts[1] not in ("purelib", "platlib"):
                    continue
                parts = parts[2:]
            if each.is_dir() or not parts:
                continue
            if ".." in parts or Path(*parts).is_absolute():
                sys.exit(f"{wheel.name}: {each.filename} is no path within a package")
            target = packages.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(each))
            target.chmod(0o644)
