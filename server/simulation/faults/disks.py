"""Faults of disks and of the epoch store."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.ids import LogId, ShardId, is_metadata_log
from logdevice_py.core.units import MILLISECOND, SECOND
from server.simulation.faults.catalog import FaultInstance, fault
from server.simulation.machines import SimNode, SimNodeState
from storage_node.log_store.memory import MemoryDisk

# Whole disks. A disk that goes elsewhere is that of a running node: one that was swapped before might come back to where it was, and a shard
# that gets its own disk of some time ago is another fault.


def _run(*nodes: SimNode) -> bool:
    return all(node.state is SimNodeState.RUNNING for node in nodes)


@fault("a node comes back with empty disks", destroys=True)
def wipe(it: FaultInstance) -> None:
    node = it.node()
    if it.budget.take_shards(node.disks):
        it.hit()
        node.crash(machine=True)
        node.wipe()
        it.later(lambda: it.restart(node))


@fault("two nodes come back with each other's disks", destroys=True)
def swap_disks(it: FaultInstance) -> None:
    one, two = it.rng.sample(it.nodes(), 2)
    if _run(one, two) and it.budget.take_shards([*one.disks, *two.disks]):
        it.hit()
        for node in (one, two):
            node.crash(machine=True)
        first, second = one.snapshot(), two.snapshot()
        one.take_disks(second)
        two.take_disks(first)
        for node in (one, two):
            it.later(lambda node=node: it.restart(node))  # type: ignore[misc]


@fault("a node comes back with a copy of another node's disks", destroys=True)
def foreign_disk(it: FaultInstance) -> None:
    node, other = it.rng.sample(it.nodes(), 2)
    if _run(other) and it.budget.take_shards(node.disks):
        it.hit()
        node.crash(machine=True)
        node.take_disks(other.snapshot())
        it.later(lambda: it.restart(node))


@fault("a node comes back with disks that were replaced before", destroys=True)
def replaced_disk(it: FaultInstance) -> None:
    """A backup of before a wipe is restored after it: the shard has a later generation by then."""
    node = it.node()
    if not (_run(node) and it.budget.take_shards(node.disks)):
        return
    node.crash(machine=True)
    backup = node.snapshot()
    node.wipe()
    it.restart(node)

    def restore() -> None:
        if _run(node):
            it.hit()
            node.crash(machine=True)
            node.restore(backup)
            it.later(lambda: it.restart(node))

    it.after(it.rng.choice([SECOND, 3 * SECOND]), restore)


@fault("a node comes back with its disks as they were before it was started last", destroys=True)
def roll_back_over_a_start(it: FaultInstance) -> None:
    node = it.node()
    if not (_run(node) and it.budget.take_shards(node.disks)):
        return
    backup = node.snapshot()
    node.crash(machine=True)
    it.restart(node)
    noticed = it.cluster.fault_effects

    def restore() -> None:
        if _run(node) and all(backup.values()):
            node.crash(machine=True)
            node.restore(backup)
            before = noticed["identity_noticed"]
            it.restart(node)
            it.after(10 * SECOND, lambda: it.hit() if noticed["identity_noticed"] > before else None)

    it.after(it.rng.choice([SECOND, 3 * SECOND]), restore)


@fault("a node comes back with an older state of its disks", destroys=True, silent=True)
def roll_back(it: FaultInstance) -> None:
    node = it.node()
    backup = node.snapshot()

    def restore() -> None:
        if all(backup.values()) and it.budget.take_shards(node.disks, silent=True):
            it.hit()
            node.crash(machine=True)
            node.restore(backup)
            it.restart(node)

    it.after(it.rng.choice([SECOND, 3 * SECOND, 10 * SECOND]), restore)


@fault("a disk says that it synced and has not; then the machine loses power", destroys=True, silent=True)
def lying_sync(it: FaultInstance) -> None:
    node = it.node()
    if not it.budget.take_shards(node.disks, silent=True):
        return
    for disk in node.disks.values():
        disk.lying = True

    def crash() -> None:
        node.crash(machine=True)
        for disk in node.disks.values():
            disk.lying = False
        it.later(lambda: it.restart(node))

    it.later(crash)


@fault("bits of stored copies flip", destroys=True)
def bit_flip(it: FaultInstance) -> None:
    node = it.node()
    for shard, disk in node.disks.items():
        copies = disk.copies()
        if it.rng.random() < 0.2:
            copies = [key for key in copies if is_metadata_log(LogId(int.from_bytes(key[1:9], "big")))]
        for key in it.rng.sample(copies, min(len(copies), it.rng.choice([1, 3, 20]))):
            log, lsn = int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")
            if it.budget.take_entry(shard, log, lsn):
                disk.flip(key, it.rng.randrange(8 * disk.length_of(key)))


# Disks that do not do what they are asked


def _on_disks(
    it: FaultInstance, node: SimNode, set_to: Callable[[MemoryDisk, bool], None], *, most: int = 5 * SECOND
) -> None:
    def put(bad: bool) -> None:
        for disk in node.disks.values():
            set_to(disk, bad)

    put(True)
    it.later(lambda: put(False), most=most)


def _set_overloaded(disk: MemoryDisk, bad: bool) -> None:
    disk.overloaded = bad


def _set_full(disk: MemoryDisk, bad: bool) -> None:
    disk.taken = disk.total if bad else 0


def _set_fail_sync(disk: MemoryDisk, bad: bool) -> None:
    disk.fail_sync = bad


def _set_fail_write(disk: MemoryDisk, bad: bool) -> None:
    disk.fail_write = bad


@fault("a disk is slow, to sync and to read")
def slow_disk(it: FaultInstance) -> None:
    node = it.node()
    node.disk_settings.sync_max = it.rng.choice([50 * MILLISECOND, SECOND, 5 * SECOND])
    node.disk_settings.read_max = it.rng.choice([MILLISECOND, 50 * MILLISECOND, SECOND])

    def undo() -> None:
        hanging = node.disk_settings.hanging
        node.disk_settings.clear()
        node.disk_settings.hanging = hanging

    it.later(undo)


@fault("a disk hangs: nothing that it is asked ends")
def hanging_disk(it: FaultInstance) -> None:
    node = it.node()
    node.disk_settings.hanging = True

    def undo() -> None:
        node.disk_settings.hanging = False

    it.later(undo, most=it.rng.choice([SECOND, 10 * SECOND, 120 * SECOND]))


@fault("a disk does not keep up and refuses writes")
def overloaded_disk(it: FaultInstance) -> None:
    _on_disks(it, it.node(), _set_overloaded)


@fault("a disk is full")
def disk_full(it: FaultInstance) -> None:
    _on_disks(it, it.node(), _set_full)


@fault("most disks are full", counted_as="disk_full")
def disks_full(it: FaultInstance) -> None:
    nodes = it.nodes()
    for node in it.rng.sample(nodes, len(nodes) // 2 + 1):
        _on_disks(it, node, _set_full)


@fault("something else takes up most of a disk")
def crowded_disk(it: FaultInstance) -> None:
    share = it.rng.choice([0.4, 0.6, 0.8])

    def set_crowded(disk: MemoryDisk, bad: bool) -> None:
        disk.taken = int(disk.total * share) if bad else 0

    _on_disks(it, it.node(), set_crowded)


def _fail_for_a_while(it: FaultInstance, set_to: Callable[[MemoryDisk, bool], None]) -> None:
    node = it.node()
    if not it.budget.take_unsynced(node.disks):
        return
    _on_disks(it, node, set_to, most=SECOND)

    def reopen() -> None:
        if node.failed and not node.disks_broken:
            node.crash(machine=it.rng.random() < 0.3)
            it.restart(node)

    it.later(lambda: it.later(reopen, most=10 * SECOND))


@fault("a sync fails; what it covered may be lost, and the shard answers nothing until it is opened again")
def failing_sync(it: FaultInstance) -> None:
    _fail_for_a_while(it, _set_fail_sync)


@fault("a write fails; the shard answers nothing until it is opened again")
def failing_write(it: FaultInstance) -> None:
    _fail_for_a_while(it, _set_fail_write)


@fault("some copies cannot be read for a while")
def read_error(it: FaultInstance) -> None:
    node = it.node()
    lent = it.budget.lend(node.disks)
    if lent is None:
        return
    marked: list[tuple[ShardId, bytes]] = []
    for shard, disk in node.disks.items():
        copies = disk.copies()
        wanted = it.rng.sample(copies, min(len(copies), it.rng.choice([1, 5, 1000])))
        disk.unreadable.update(wanted)
        marked += [(shard, key) for key in wanted]

    def undo() -> None:
        for shard, key in marked:
            node.disks[shard].unreadable.discard(key)
        it.budget.give_back(lent)

    it.later(undo, most=20 * SECOND)


# The epoch store


@fault("the epoch store refuses")
def epoch_store_away(it: FaultInstance) -> None:
    weather = it.cluster.weather
    weather.refuse, weather.refuse_kind = it.rng.choice([0.5, 1.0]), it.kind

    def undo() -> None:
        weather.refuse = 0.0

    it.later(undo)


@fault("the epoch store is away for minutes", minutes=True)
def epoch_store_long_absence(it: FaultInstance) -> None:
    weather = it.cluster.weather
    weather.refuse, weather.refuse_kind = 1.0, it.kind

    def undo() -> None:
        weather.refuse = 0.0

    it.after(it.rng.choice([60, 120, 300]) * SECOND, undo)


@fault("the epoch store does what it is asked, and its answers are lost")
def epoch_store_lost_answer(it: FaultInstance) -> None:
    weather = it.cluster.weather
    weather.lose_answer = it.rng.choice([0.3, 0.9])

    def undo() -> None:
        weather.lose_answer = 0.0

    it.later(undo)


@fault("sessions with the epoch store expire: requests are lost, or arrive after they timed out")
def epoch_store_expiry(it: FaultInstance) -> None:
    weather = it.cluster.weather
    weather.expire = it.rng.choice([0.2, 0.6])

    def undo() -> None:
        weather.expire = 0.0

    it.later(undo)


@fault("the epoch store answers late, so that writes of several nodes cross")
def epoch_store_conflict(it: FaultInstance) -> None:
    cluster = it.cluster
    cluster.weather.delay_max = it.rng.choice([50 * MILLISECOND, 500 * MILLISECOND])

    def undo() -> None:
        cluster.weather.delay_max = 5 * MILLISECOND

    def touch(times: int) -> None:
        for key in sorted(cluster.cells.cells):
            if it.rng.random() < 0.3:
                cluster.cells.touch(key)
        if times:
            it.after(it.rng.randrange(300 * MILLISECOND), lambda: touch(times - 1))

    touch(it.rng.choice([0, 5, 30]))
    it.later(undo)


@fault("reads from the epoch store come from a server that lags behind")
def epoch_store_stale(it: FaultInstance) -> None:
    weather = it.cluster.weather
    weather.stale = it.rng.choice([0.5, 1.0])

    def undo() -> None:
        weather.stale = 0.0

    it.later(undo)
