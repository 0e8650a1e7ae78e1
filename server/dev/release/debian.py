"""The Debian package: our wheel and those that it needs in an environment of their own, programs, the unit of a node, pages."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from server.dev.release.source import SourceOfRelease
from server.dev.release.wheels import LOCK, unpack

HOME: Final = "usr/lib/logdevice-py"
INTERPRETER: Final = "python3.11"
"""Debian 12's. Compiled modules are of the interpreter that made them, so the machine that builds has it as well."""
_PROGRAM: Final = """\
#!/{home}/bin/python3 -I
import sys

from {module} import {function}

sys.exit({function}())
"""
_SCRIPTS: Final = ("postinst", "prerm", "postrm")
_LEFT_OUT: Final = frozenset({"ldbench", "ldindex", "ldindexd"})
"""Programs that need extras which the package does not bring: pip installs them."""


def file_tree(source: SourceOfRelease, wheels: Sequence[Path], root: Path) -> None:
    """All that the package installs, below `root`."""
    home = root / HOME
    packages = home / "lib" / INTERPRETER / "site-packages"
    for wheel in wheels:
        unpack(wheel, packages)
    _write(home / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n")
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(f"/usr/bin/{INTERPRETER}")
    for name, target in sorted(source.project["scripts"].items()):
        if name not in _LEFT_OUT:
            module, _, function = target.partition(":")
            _write(root / "usr/bin" / name, _PROGRAM.format(home=HOME, module=module, function=function), 0o755)
    _write(root / "lib/systemd/system/logdeviced@.service", source.conf("systemd", "logdeviced@.service").read_text())
    (root / "etc/logdevice").mkdir(parents=True)
    pages = root / "usr/share/doc/logdevice-py"
    for page in ("install.md", "upgrades.md", "disaster.md", "operators.md", "ldctl.md", "security.md", "settings.md"):
        _write(pages / page, (source.directory / "docs" / page).read_text())
    _write(pages / LOCK, source.conf("debian", LOCK).read_text())
    _write(pages / "copyright", (source.directory / "LICENSE").read_text())
    _write(pages / "examples" / "cluster.toml", source.conf("cluster.toml").read_text())
    changes = gzip.compress((source.directory / "CHANGELOG.md").read_bytes(), mtime=0)
    (pages / "changelog.gz").write_bytes(changes)
    (pages / "changelog.gz").chmod(0o644)


def build_package(source: SourceOfRelease, wheels: Sequence[Path], scratch: Path, into: Path) -> Path:
    """The package.

    Args:
        wheels: ours and those of others.
        scratch: an empty directory.
    """
    root = scratch / "package"
    file_tree(source, wheels, root)
    compile_modules(source, root)
    size = sum(each.stat().st_size for each in root.rglob("*") if each.is_file() and not each.is_symlink())
    control = source.conf("debian", "control").read_text()
    version = debian_version(source.version)
    _write(root / "DEBIAN/control", control.replace("@VERSION@", version).replace("@SIZE@", str(size >> 10)))
    for name in _SCRIPTS:
        _write(root / "DEBIAN" / name, source.conf("debian", name).read_text(), 0o755)
    for directory in (root, *(each for each in root.rglob("*") if each.is_dir())):
        directory.chmod(0o755)
    package = into / f"logdevice-py_{version}_amd64.deb"
    source.run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--threads-max=1", "--build", root, package)
    return package


def compile_modules(source: SourceOfRelease, root: Path) -> None:
    """Put compiled modules beside all modules below `root`. Programs of the package may not write there, and would compile at each start.

    They carry no time and are not compared with their sources: whoever changes an installed source removes its compiled module.
    """
    runs = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = sys.executable if runs == INTERPRETER else shutil.which(INTERPRETER)
    if interpreter is None:
        sys.exit(f"{INTERPRETER} is missing: it compiles the modules of the package")
    source.run(
        interpreter, "-I", "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash",
        "-s", root, "-p", "/", root / HOME / "lib",
    )  # fmt: skip


def debian_version(version: str) -> str:
    """How Debian writes a version of Python's: a development version or candidate sorts before what it leads to."""
    for mark in (".dev", "a", "b", "rc"):
        if mark in version:
            return version.replace(mark, "~" + mark.lstrip("."), 1)
    return version


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
