"""What a release is built from: the files of a commit, whatever else lies in the working tree, and its time as the time of everything."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class SourceOfRelease:
    """The files of a commit."""

    directory: Path
    commit: str
    epoch: int
    """Seconds since 1970: SOURCE_DATE_EPOCH, else the commit's own time. Nothing in an artifact is younger."""

    @cached_property
    def project(self) -> dict[str, Any]:
        """The table of that name in pyproject.toml."""
        found: dict[str, Any] = tomllib.loads((self.directory / "pyproject.toml").read_text())["project"]
        return found

    @property
    def version(self) -> str:
        """Of the project."""
        return str(self.project["version"])

    def conf(self, *names: str) -> Path:
        """A file below conf."""
        return self.directory.joinpath("conf", *names)

    def environment(self) -> dict[str, str]:
        """Of the programs that build: the same everywhere."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
        return {
            **kept,
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONHASHSEED": "0",
        }

    def run(self, *command: str | Path, cwd: Path | None = None) -> None:
        """Run a program that builds; it ends this one where it fails."""
        done = subprocess.run(
            list(map(str, command)), cwd=cwd or self.directory, env=self.environment(), check=False, capture_output=True
        )
        if done.returncode:
            output = (done.stdout + done.stderr).decode(errors="replace")
            sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{output}")

    def requirements(self, *extras: str) -> list[str]:
        """What the project and some of its extras depend on, without the project itself."""
        lines = list(self.project["dependencies"])
        for extra in extras:
            for line in self.project["optional-dependencies"][extra]:
                requirement = Requirement(line)
                lines += self.requirements(*requirement.extras) if requirement.name == self.project["name"] else [line]
        return sorted(set(lines))


def head() -> str:
    """The commit that is checked out."""
    return git("rev-parse", "HEAD").strip()


def export(commit: str, into: Path) -> SourceOfRelease:
    """The files of a commit, written into an empty directory."""
    epoch = git("log", "-1", "--format=%ct", commit).strip()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return SourceOfRelease(into, commit, int(os.environ.get("SOURCE_DATE_EPOCH") or epoch))


def changes() -> list[str]:
    """What differs from HEAD, and is therefore not released."""
    return git("status", "--porcelain").splitlines()


def git(*arguments: str) -> str:
    """What git prints about this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
