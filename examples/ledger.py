"""Accounts kept by one process at a time in an exclusive stream, with any number of others that stand by.

``python examples/ledger.py CLUSTER_FILE OWNER`` waits until nobody else keeps the ledger, reads what is in it, and takes transfers from standard input, a line
each: ``FROM TO AMOUNT``. It answers each when it is stored, or at once that it is refused. Whoever keeps it may be killed or paused at any moment: another one takes
over with all that was answered, and what a former one writes late is refused. A transfer is two records that are written together, so the accounts add up to nothing
at any time.

``python examples/ledger.py CLUSTER_FILE`` prints the accounts. The cluster needs the log tree.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from logdevice_py import Client, LogDeviceError, Namespace, Status, Stream

BANK = "bank"
"""It lends without end."""


async def open_ledger(namespace: Namespace) -> Stream:
    """The stream, which whoever comes first makes."""
    try:
        return await namespace.create("ledger", writers="exclusive")
    except LogDeviceError as error:
        if error.status is not Status.EXISTS:
            raise
        return await namespace.open("ledger")


async def balances_of(stream: Stream) -> Counter[str]:
    """What all accounts have: the sum of all records."""
    balances: Counter[str] = Counter()
    async with stream.reader(until="tail") as reader:
        async for record in reader:
            account, amount = json.loads(record.payload or b"")
            balances[account] += amount
    return balances


async def keep(stream: Stream, owner: str) -> None:
    """Own the ledger and take transfers until standard input ends.

    Raises:
        GuardError: FENCED: another process keeps it now.
    """
    async with stream.exclusive_writer(owner=owner, lease="2s") as writer:
        balances = await balances_of(stream)
        print(f"{owner} keeps the ledger", flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            source, target, text = line.split()
            amount = int(text)
            if amount <= 0 or (source != BANK and balances[source] < amount):
                print(f"refused: {line}", flush=True)
                continue
            changes = [(source, -amount), (target, amount)]
            await writer.write_many([json.dumps(change).encode() for change in changes], atomic=True)
            for account, change in changes:
                balances[account] += change
            print(f"done: {line}", flush=True)


async def main(cluster: str, owner: str | None) -> int:
    """Entry point."""
    async with Client(cluster) as client, Namespace(client, "/bank") as namespace:
        stream = await open_ledger(namespace)
        if owner is None:
            print(json.dumps(await balances_of(stream), sort_keys=True))
            return 0
        try:
            await keep(stream, owner)
        except LogDeviceError as error:
            print(f"{owner} stops: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)))
