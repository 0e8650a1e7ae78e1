"""A standalone Spark cluster: a master and workers as processes of their own, and Pythons without this repository for what they run."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from server.dev.free_ports import free_ports
from tests.spark.conftest import ROOT

HOME = Path(pyspark.__file__).parent
TIMEOUT = 120.0


def wheel(directory: Path) -> Path:
    """Ours, as it would be published, but for its name: Spark takes no packages from files that it does not know the ending of."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), ROOT]
    subprocess.run(build, check=True, timeout=TIMEOUT)
    (found,) = directory.glob("*.whl")
    return found.rename(found.with_suffix(".zip"))


def python_without(directory: Path, *missing: str) -> str:
    """A Python that has what this one has installed, save for the packages that `missing` names, and for this repository."""
    packages = directory / "packages"
    packages.mkdir(parents=True)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.suffix != ".pth" and not each.name.startswith(("logdevice_py", *missing)):
            (packages / each.name).symlink_to(each)
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {os.path.realpath(sys.executable)} -S "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


def packed(directory: Path, *packages: str) -> Path:
    """An environment in one file, as venv-pack makes it: a Python that has these packages and, but for Spark's own, no other."""
    directory.mkdir()
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:$(dirname "$0")/../packages" exec {os.path.realpath(sys.executable)} -S "$@"\n'
    )
    python.chmod(0o755)
    site = Path(sysconfig.get_path("purelib"))
    archive = directory / "env.tar.gz"  # of a plain .tar Spark does not keep what is executable
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(python, "bin/python")
        for package in packages:
            found = sorted(site.glob(f"{package}*"))
            assert found, package
            for each in found:
                tar.add(each, f"packages/{each.name}")
    return archive


def environment(python: str, executor_python: str | None = None) -> dict[str, str]:
    """Of a program that is submitted."""
    return {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(HOME),
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_PYTHON": executor_python or python,
    }


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running cluster."""

    url: str
    processes: Sequence[subprocess.Popen[bytes]]

    def submit(self, *files: Path, archive: Path | None = None) -> list[str]:
        """The command that runs a program with some packages, and with an environment that is unpacked as ``env``."""
        archives = [] if archive is None else ["--archives", f"{archive}#env"]
        return [str(HOME / "bin" / "spark-submit"), "--py-files", ",".join(map(str, files)), *archives]


def _wait_for(text: str, file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while text not in (said := file.read_text()):
        assert process.poll() is None, said[-2000:]
        assert time.monotonic() < deadline, f"{text!r} does not come:\n{said[-2000:]}"
        time.sleep(0.1)


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    """A master and so many workers of one core; they seem to be on different machines, which Spark wants for speculation."""
    directory.mkdir()
    port, web = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        said = directory / f"{name}.log"
        with said.open("wb") as log:
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
            own = {"PATH": os.environ["PATH"], "SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}
            process = subprocess.Popen(command, env=own, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
        processes.append(process)
        _wait_for("New state: ALIVE" if name == "master" else "Successfully registered", said, process)

    try:
        ports = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
        start("master", "master.Master", *ports)
        for number in range(workers):
            host = f"127.0.0.{number + 1}"
            own_port, own_web = free_ports(2, host)
            place = ["--host", host, "--port", str(own_port), "--webui-port", str(own_web)]
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work{number}")]
            start(f"worker{number}", "worker.Worker", *place, *size, url)
        yield Standalone(url, processes)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in reversed(processes):
            process.wait(TIMEOUT)
