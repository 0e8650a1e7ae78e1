from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.ldbench import servers
from benchmarks.ldbench.servers import MissingServerError

PROGRAM = "#!/bin/sh\necho nats-server: v9.9.9\n"


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("NATS_SERVER", "REDIS_SERVER", "KAFKA_HOME", "BOOKKEEPER_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


def make_java(tmp_path: Path) -> None:
    make_program(tmp_path / "bin/java")


@pytest.mark.parametrize("name", list(servers.FETCHERS))
def test_a_missing_server_is_told_with_the_command_that_fetches_it(name: str, tmp_path: Path) -> None:
    make_java(tmp_path)
    told = servers.describe(name)
    assert told.startswith("missing: ")
    assert f"ldbench fetch {name}" in told


def test_without_java_kafka_says_so() -> None:
    with pytest.raises(MissingServerError, match="needs Java"):
        servers.find_kafka()


def test_a_program_is_taken_from_the_environment_before_the_cache_and_from_there_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = make_program(tmp_path / "bin/nats-server")
    assert servers.find_nats().path == on_path
    cached = make_program(tmp_path / f"cache/nats-server-{servers.NATS_VERSION}/nats-server")
    assert servers.find_nats().path == cached
    monkeypatch.setenv("NATS_SERVER", str(make_program(tmp_path / "own")))
    assert servers.find_nats().path == tmp_path / "own"
    assert servers.find_nats().version() == "nats-server: v9.9.9"


def test_an_environment_variable_that_names_nothing_is_an_error_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_program(tmp_path / "bin/nats-server")
    monkeypatch.setenv("NATS_SERVER", str(tmp_path / "nowhere"))
    with pytest.raises(MissingServerError, match="no executable"):
        servers.find_nats()


def test_the_version_of_an_installation_in_java_is_that_of_its_main_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path)
    libraries = tmp_path / "kafka/libs"
    libraries.mkdir(parents=True)
    (libraries / "kafka_2.13-4.1.0.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "kafka"))
    found = servers.find_kafka()
    assert (found.version, found.class_path) == ("4.1.0", f"{libraries}/*")


def test_a_fetch_that_breaks_leaves_nothing_that_could_be_taken_for_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path)
    maven = tmp_path / "bin/mvn"
    maven.write_text("#!/bin/sh\necho no such artifact\nexit 1\n")
    maven.chmod(0o755)
    said: list[str] = []
    assert not servers.fetch(["kafka"], said.append)
    assert "no such artifact" in said[-1]
    assert os.listdir(tmp_path / "cache") == []


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    make_program(tmp_path / "bin/nats-server")
    said: list[str] = []
    assert servers.fetch(["jetstream"], said.append)
    assert said == [f"jetstream: nats-server: v9.9.9 at {tmp_path / 'bin/nats-server'}"]
