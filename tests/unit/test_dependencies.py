"""What is installed is what pyproject.toml asks for: floors are there because of vulnerabilities."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
REQUIRED = [
    requirement
    for line in (
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    )
    if not (requirement := Requirement(line)).name.startswith("logdevice")
]


@pytest.mark.parametrize("requirement", REQUIRED, ids=str)
def test_what_is_installed_is_as_new_as_it_must_be(requirement: Requirement) -> None:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        pytest.skip("it is not installed")
    assert requirement.specifier.contains(installed, prereleases=True)
