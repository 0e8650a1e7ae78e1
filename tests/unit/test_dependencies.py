"""What is installed is what pyproject.toml asks for: floors are there because of vulnerabilities. The client needs nothing of a node's."""

from __future__ import annotations

import functools
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from client.spark.packages import NEEDED as WORKERS_NEED

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = [
    requirement
    for line in (*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra))
    if not (requirement := Requirement(line)).name.startswith("logdevice")
]

ONLY_THE_CLIENTS = """
import sys
from importlib import import_module
from pkgutil import walk_packages

installed = {installed!r}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in installed else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
"""
"""What a program begins with that runs as though only our own package and what it depends on without extras were installed."""

EVERYTHING_OF_THE_CLIENT = """
elsewhere = ("client.spark", "client.node_tables", "client.tracing", "streams.spark", "streams.cold")
found = []
for package in ("client", "streams"):
    for module in walk_packages(import_module(package).__path__, package + ".", onerror=lambda name: None):
        if not module.name.startswith(elsewhere) and not module.name.endswith("__main__"):
            found.append(import_module(module.name))
import logdevice_py
names = [getattr(logdevice_py, name) for name in logdevice_py.__all__ if name not in logdevice_py._EXTRAS]
print(len(found), len(names))
"""


MODULES_OF_EXTRAS = """
left_out = {left_out!r}
found = 0
for package in {packages!r}:
    for module in walk_packages(import_module(package).__path__, package + ".", onerror=lambda name: None):
        if not module.name.startswith(left_out) and not module.name.endswith("__main__"):
            import_module(module.name)
            found += 1
print(found)
"""


def brought_by(*extras: str) -> set[str]:
    """Names of the installed packages that the project brings with these extras, and what these bring in turn."""
    waiting = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    found = {"logdevice-py"}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name == "logdevice-py":
            waiting += [line for extra in requirement.extras for line in EXTRAS[extra]]
        elif name not in found:
            found.add(name)
            waiting += requires(name) or ()
    return found


@functools.cache
def providers() -> Mapping[str, list[str]]:
    """Of each module that is installed: the packages that bring it. A list of all files of all packages is read for it."""
    return packages_distributions()


def run_with_only_the_clients(
    program: str, *arguments: str, extras: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    ours = brought_by(*extras)
    others = {top for top, names in providers().items() if not any(canonicalize_name(name) in ours for name in names)}
    text = ONLY_THE_CLIENTS.format(installed=others) + program
    return subprocess.run(
        [sys.executable, "-c", text, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("requirement", REQUIRED, ids=str)
def test_what_is_installed_is_as_new_as_it_must_be(requirement: Requirement) -> None:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        pytest.skip("it is not installed")
    assert requirement.specifier.contains(installed, prereleases=True)


def test_a_client_needs_no_package_of_a_node() -> None:
    done = run_with_only_the_clients(EVERYTHING_OF_THE_CLIENT)
    assert done.returncode == 0, done.stderr
    modules, names = map(int, done.stdout.split())
    assert modules > 100
    assert names > 25


@pytest.mark.parametrize(
    ("extra", "packages", "left_out"),
    [
        ("admin", ("ldquery.ctl",), ()),
        ("query", ("ldquery",), ()),
        ("server", ("server", "sequencer", "storage_node", "epoch_store"), ("server.dev.render_docs", "server.dev.release", "server.simulation.pytest_plugin")),
        ("spark", ("client.spark", "streams.spark"), ()),
        ("index", ("indexlog",), ("indexlog.spark", "indexlog.delta")),
        ("cold", ("streams.cold",), ()),
    ],
)  # fmt: skip
def test_an_extra_brings_all_that_its_modules_import(
    extra: str, packages: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    done = run_with_only_the_clients(MODULES_OF_EXTRAS.format(packages=packages, left_out=left_out), extras=(extra,))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_spark_s_workers_are_asked_for_what_the_extra_brings() -> None:
    assert set(WORKERS_NEED.values()) <= brought_by("spark")


@pytest.mark.parametrize("program", ["ldwrite", "ldcat", "ldtail", "ldstream"])
def test_programs_of_the_client_run_without_extras(program: str) -> None:
    done = run_with_only_the_clients(f"from logdevice_py.programs import {program} as run\nsys.exit(run())", "--help")
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("logdeviced", "server"), ("dev_cluster", "server"), ("ldctl", "admin"), ("ldquery", "query"),
        ("ldindex", "index"), ("ldindexd", "index"), ("ldbench", "bench"),
    ],
)  # fmt: skip
def test_a_program_that_needs_an_extra_says_which(program: str, extra: str) -> None:
    done = run_with_only_the_clients(f"from logdevice_py.programs import {program} as run\nsys.exit(run())", "--help")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install 'logdevice-py[{extra}]'")
    assert extra in EXTRAS


@pytest.mark.parametrize(("name", "extra"), [("LocalCluster", "server"), ("simulate", "server"), ("LDQuery", "query")])
def test_a_name_that_needs_an_extra_says_which(name: str, extra: str) -> None:
    done = run_with_only_the_clients(f"from logdevice_py import {name}")
    assert f"{name} needs " in done.stderr.splitlines()[-1]
    assert done.stderr.endswith(f"pip install 'logdevice-py[{extra}]'\n")
    assert extra in EXTRAS
