"""What a shard tells of recovered epochs, from what it has in memory."""

from __future__ import annotations

from logdevice_py.core.epoch_summary import EpochSummary, SummaryFlags, decode_rows
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.lsn import Epoch, Esn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import EpochsListed, ListEpochs
from tests.unit.storage_node.fakes import ME, SYNC_LOG, ShardDriver, clean, lsn, stores

CLIENT = PeerId(-5)


def ask(driver: ShardDriver, first: int, last: int, rows: int = 100, log: LogId = SYNC_LOG) -> EpochsListed:
    driver.sent.clear()
    driver.turn((CLIENT, ListEpochs(request_id=3, shard=ME, log=log, first=Epoch(first), last=Epoch(last), rows=rows)))
    (answer,) = driver.take(EpochsListed)
    return answer


def recovered(*epochs: int) -> ShardDriver:
    """Odd epochs are counted."""
    driver = ShardDriver()
    for epoch in epochs:
        driver.turn(*stores([lsn(epoch, 1)], log=SYNC_LOG))
        peer, message = clean(epoch, 9, log=SYNC_LOG, lng=1, last=2)
        if epoch % 2:
            told = EpochSummary(int(SummaryFlags.COUNTED), Epoch(9), Esn(1), Esn(1), 1, 0, epoch * 10).encode()
            message.logs = [message.logs[0]._replace(summary=told)]
        driver.turn((peer, message))
    return driver


def test_it_tells_of_the_epochs_in_the_range() -> None:
    answer = ask(recovered(1, 2, 3, 4), 2, 3)
    assert (answer.status, answer.covered) == (Status.OK, 3)
    told = dict(decode_rows(answer.rows))
    assert list(told) == [2, 3]
    assert (told[Epoch(2)].counted, told[Epoch(2)].last) == (False, 1)
    assert (told[Epoch(3)].counted, told[Epoch(3)].records) == (True, 30)
    assert answer.through >= lsn(4, 1)


def test_an_answer_of_few_rows_says_how_far_it_goes() -> None:
    answer = ask(recovered(1, 2, 3, 4), 1, 9, rows=3)
    assert answer.covered == 3
    assert len(list(decode_rows(answer.rows))) == 3


def test_it_is_on_disk() -> None:
    driver = recovered(1, 2, 3)
    before = ask(driver, 1, 3).rows
    assert len(list(decode_rows(before))) == 3
    driver.restart()
    assert ask(driver, 1, 3).rows == before


def test_an_unknown_log_has_no_epochs_and_nonsense_is_refused() -> None:
    driver = recovered(1)
    assert ask(driver, 1, 3, log=LogId(77)).rows == b""
    assert ask(driver, 3, 1).status is Status.INVALID_PARAM
    assert ask(driver, 1, 3, rows=0).status is Status.INVALID_PARAM
