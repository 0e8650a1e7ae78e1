"""Who gets which stream of a group: balanced within one, with as few moves as possible, and the same wherever it is worked out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def assign(holders: Mapping[str, str | None], members: Iterable[str]) -> dict[str, str]:
    """The member of each stream. Nobody has two more than another; whoever has no more than his share keeps all.

    Args:
        holders: the member that has, or is to get, each stream; None, or a name that is not among the members: nobody.
        members: may be none; then nobody gets anything.
    """
    held: dict[str, list[str]] = {name: [] for name in sorted(members)}
    if not held:
        return {}
    free: list[str] = []
    for stream in sorted(holders):
        holder = holders[stream]
        held.get(holder or "", free).append(stream)
    share, left = divmod(len(holders), len(held))
    # the larger shares go to those who hold most: each of them then moves one stream less
    order = sorted(held, key=lambda name: (-len(held[name]), name))
    shares = {name: share + (rank < left) for rank, name in enumerate(order)}
    for name, streams in held.items():
        free += streams[shares[name] :]
        del streams[shares[name] :]
    free.sort()
    for name, streams in held.items():
        missing = shares[name] - len(streams)
        streams += free[:missing]
        del free[:missing]
    return {stream: name for name, streams in held.items() for stream in streams}
