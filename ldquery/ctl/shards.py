"""Verbs about shards that are lost, or to be taken out: they append events to the event log."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_FAILED, EXIT_OK, Attendant, say
from ldquery.ctl.verb import PROGRAM, Verb, show
from logdevice_py.core.ids import EVENT_LOG_DELTAS, ShardId, format_shard
from logdevice_py.core.lsn import LSN
from logdevice_py.event_log.events import RebuildMode

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard

ShardWork = Callable[["Client", ShardId], Awaitable[tuple["RebuildingShard | None", bool]]]
"""Returns what the event log says of the shard then (None: the shard is used), and whether it said so before."""
_BUT = {"unplaced": ", but some records have copies less", "uncertain": ", but records may be gone"}


def parse_shard_argument(text: str) -> ShardId:
    """For `argparse`."""
    from ldquery.ctl.event_log import parse_shard

    try:
        return parse_shard(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _shard(options: argparse.ArgumentParser) -> None:
    action = options.add_argument(
        "shard", metavar="SHARD", type=parse_shard_argument, help="like N3:S0, or N3 for its first one"
    )
    complete_words(action, Words.NODES)


def _shard_to_wait_for(options: argparse.ArgumentParser) -> None:
    _shard(options)
    options.add_argument("--wait", action="store_true", help="until everything that it held is stored elsewhere")


def show_states(arguments: argparse.Namespace, state: RebuildingSet) -> None:
    """Print what the event log says of shards."""
    left = ", ".join(format_shard(donor) for donor in state.donors if state.awaits(donor))
    for shard, entry in sorted(state.shards.items()):
        status = entry.status
        show(
            arguments,
            {
                "shard": format_shard(shard),
                "generation": int(entry.generation),
                "mode": entry.mode.name,
                "status": status,
                "silence counts as": entry.authority.name,
                "since": str(LSN(entry.since)),
                "waits for": left if status == "rebuilding" else None,
                "because": entry.source or None,
            },
        )


def why_not_done(entry: RebuildingShard | None, mode: RebuildMode) -> str | None:
    """What to say of a shard whose rebuilding ended in another way than was wanted; None: it ended well."""
    if mode is RebuildMode.RELOCATE and (entry is None or (entry.mode is RebuildMode.RESTORE and not entry.drained)):
        return "is used again, nobody drains it any more"
    if mode is RebuildMode.RELOCATE and entry is not None and entry.mode is RebuildMode.RESTORE:
        return f"was lost ({entry.status}), and is drained when it is back"
    return entry.status if entry is not None and entry.flags else None


def what_is_so(shard: ShardId, entry: RebuildingShard | None, *, already: bool = False) -> str:
    """What the event log says of a shard, in a sentence. `already`: before it was asked for, too."""
    name = format_shard(shard)
    if entry is None:
        return f"{name} is used again"
    done = "drained" if entry.mode is RebuildMode.RELOCATE else "rebuilt"
    text = f"{name} is {'' if entry.rebuilt else 'being '}{done}{' already' if already else ''}{_BUT.get(entry.status, '')}"
    return f"{text}; it is to be drained when it is back" if entry.drained else text


def what_is_unrecoverable(shard: ShardId, entry: RebuildingShard | None, *, already: bool = False) -> str:
    """As `what_is_so`, of a shard for whose data nobody is to wait."""
    if entry is None:
        return what_is_so(shard, entry)
    return f"{format_shard(shard)} is declared unrecoverable{' already' if already else ''}: nobody waits for what only it held"


def _named(client: Client, arguments: argparse.Namespace) -> list[ShardId]:
    return [arguments.shard]


def attended(
    work: ShardWork,
    what: str,
    mode: RebuildMode = RebuildMode.RESTORE,
    sentence: Callable[..., str] = what_is_so,
    chosen: Callable[[Client, argparse.Namespace], Sequence[ShardId]] = _named,
) -> Callable[[Client, argparse.Namespace], Awaitable[int]]:
    """What runs a verb that does something to shards: to all of them first, then it waits, if it is to, and tells what became of each.

    Args:
        work: done to each.
        what: is waited for until then.
        mode: in which they are rebuilt.
        sentence: tells what is so.
        chosen: which shards; by default what the command names.
    """

    async def run(client: Client, arguments: argparse.Namespace) -> int:
        from ldquery.ctl.event_log import wait_until_rebuilt

        attendant = Attendant(PROGRAM, client, EVENT_LOG_DELTAS, timeout=arguments.timeout or 10.0)
        attendant.waits_for = lambda: what
        entries = [(shard, *await attendant.attend(work(client, shard))) for shard in chosen(client, arguments)]
        status = EXIT_OK
        for shard, entry, already in entries:
            problem = None
            if getattr(arguments, "wait", False):
                say(PROGRAM, f"waiting until {format_shard(shard)} is rebuilt")
                begun, entry = entry, await wait_until_rebuilt(client, shard, entry)
                already = already and entry == begun
                problem = why_not_done(entry, mode)
            show(
                arguments,
                {
                    "shard": format_shard(shard),
                    "mode": None if entry is None else entry.mode.name,
                    "status": None if entry is None else entry.status,
                    "already": already,
                },
                plain=sentence(shard, entry, already=already),
            )
            if problem is not None:
                say(PROGRAM, f"{format_shard(shard)}: {problem}", alarm=True)
                status = EXIT_FAILED
        return status

    return run


async def _start(client: Client, shard: ShardId, mode: RebuildMode) -> tuple[RebuildingShard | None, bool]:
    from ldquery.ctl.event_log import read_rebuilding_set, start_rebuilding

    before = (await read_rebuilding_set(client)).shards.get(shard)
    entry = (await start_rebuilding(client, shard, mode)).shards.get(shard)
    return entry, entry == before


async def _rebuild(client: Client, shard: ShardId) -> tuple[RebuildingShard | None, bool]:
    return await _start(client, shard, RebuildMode.RESTORE)


async def drain(client: Client, shard: ShardId) -> tuple[RebuildingShard | None, bool]:
    """`ShardWork`: the shard is emptied."""
    return await _start(client, shard, RebuildMode.RELOCATE)


async def undrain(client: Client, shard: ShardId) -> tuple[RebuildingShard | None, bool]:
    """`ShardWork`: the shard is used again."""
    from ldquery.ctl.event_log import call_off

    return await call_off(client, shard), False


async def _unrecoverable(client: Client, shard: ShardId) -> tuple[RebuildingShard | None, bool]:
    from ldquery.ctl.event_log import mark_unrecoverable, read_rebuilding_set

    before = (await read_rebuilding_set(client)).shards.get(shard)
    entry = await mark_unrecoverable(client, shard)
    return entry, entry is not None and entry == before


async def _rebuildings(client: Client, arguments: argparse.Namespace) -> int:
    from ldquery.ctl.event_log import read_rebuilding_set

    attendant = Attendant(PROGRAM, client, EVENT_LOG_DELTAS, timeout=arguments.timeout or 10.0)
    attendant.waits_for = lambda: "the event log"
    state = await attendant.attend(read_rebuilding_set(client))
    show_states(arguments, state)
    if not state.shards:
        say(PROGRAM, "no shard is lost or drained")
    return EXIT_OK


VERBS: tuple[Verb, ...] = (
    Verb(
        "rebuild",
        "re-replicate what a lost shard held",
        "Says that a shard lost its data for good. The others store its records again; nothing waits for a grace period. If the shard is back with "
        "its data, that ends by itself.",
        _shard_to_wait_for,
        attended(_rebuild, "the event log to take the loss"),
    ),
    Verb(
        "drain",
        "empty a shard, so that its node can be taken out",
        "The shard takes nothing new, and everything that it holds is stored elsewhere. It serves until its node is taken out of the cluster file.",
        _shard_to_wait_for,
        attended(drain, "the event log to take the drain", RebuildMode.RELOCATE),
    ),
    Verb(
        "undrain",
        "use a shard again",
        "Calls off draining, also of a shard that is empty by now, or the rebuilding of one that was not lost after all.",
        _shard,
        attended(undrain, "the event log to call it off"),
    ),
    Verb(
        "unrecoverable",
        "declare unrecoverable what only lost shards held",
        "Nobody waits any more for the data of a lost shard. Readers report as lost what no other shard has. Only needed when so many shards are lost "
        "together that some records may have had no other copy.",
        _shard,
        attended(_unrecoverable, "the event log to take it", sentence=what_is_unrecoverable),
    ),
    Verb(
        "rebuildings",
        "show lost and drained shards",
        "Prints each shard that is lost or drained, how far rebuilding is, and what its silence counts as. One that is rebuilt or drained "
        "by now stays listed until it is used again or has left the cluster file; status tells only of those that are not.",
        lambda options: None,
        _rebuildings,
    ),
)
