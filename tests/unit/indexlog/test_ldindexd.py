"""What ldindexd takes, and what it does not serve."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from indexlog.serving.ldindexd import parser, repeat, run
from indexlog.serving.metrics import IndexServiceMetrics
from logdevice_py.core.status import LogDeviceError, Status


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:4480", ("::1", 4480)), ("h:1", ("h", 1))]
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parser().parse_args(["-c", "x.toml", "--listen", text]).listen == address


@pytest.mark.parametrize(
    "arguments",
    [["--listen", "80"], ["--listen", ":80"], ["--listen", "h:0"], ["--requests-max", "0"], ["--deal-every", "0"]],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["-c", "x.toml", *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_other_machines_are_not_served_without_a_token(tmp_path: Path) -> None:
    arguments = parser().parse_args(["-c", str(tmp_path / "cluster.toml"), "--listen", "0.0.0.0:1"])
    with pytest.raises(LogDeviceError, match=r"there is no token: write one into .*cluster\.token, or give"):
        asyncio.run(run(arguments))


def test_a_token_file_is_looked_for_where_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "secret").touch(mode=0o600)
    arguments = parser().parse_args(["-c", str(tmp_path / "cluster.toml"), "--token-file", "secret"])
    with pytest.raises(LogDeviceError, match="here/secret: a token has at least 16 characters"):
        asyncio.run(run(arguments))


def test_a_job_that_fails_is_told_counted_and_done_again(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it meets: pages are served meanwhile, and other jobs go on."""
    failures: list[Exception] = [
        LogDeviceError(Status.DATALOSS, "file 1/a of the store is damaged"),
        OSError("the disk is full"),
        ArithmeticError("offset overflow"),
    ]

    async def repeated() -> IndexServiceMetrics:
        metrics, stop, left = IndexServiceMetrics(), asyncio.Event(), iter(failures)

        async def work() -> None:
            for error in left:
                raise error
            stop.set()

        await asyncio.wait_for(repeat("optimize", work, 0.001, metrics, stop), 30)
        return metrics

    metrics = asyncio.run(repeated())
    assert (metrics.jobs, metrics.jobs_failed) == (4, 3)
    assert caplog.messages == [
        "optimize: DATALOSS: file 1/a of the store is damaged",
        "optimize: the disk is full",
        "optimize: ArithmeticError('offset overflow')",
    ]
