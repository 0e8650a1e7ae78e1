"""How many of an entry's copies must be acknowledged, so that their number alone says in how many domains they are."""

from __future__ import annotations


def fewest_acknowledgements(copies: int, domains: int) -> int:
    """The smallest number of acknowledgements, out of `copies` that are spread equally over as few domains as are promised, which always come from `domains`
    domains or more.

    Domains that are lost leave their copies to the others: in the worst case just `domains` of them are left, and all but the smallest hold
    `copies - copies // domains` copies. So many may acknowledge without the last one.

    Args:
        copies: sent to as many shards, at least `domains`.
        domains: in how many regions, or racks, an acknowledged entry must be.
    """
    assert copies >= domains >= 1, (copies, domains)
    return copies - copies // domains + 1


def refused_acknowledgement(copies: int, acknowledgements: int, domains: int, what: str = "region") -> str:
    """Why acknowledging an entry after so many copies does not promise that it is in so many domains; empty: it does."""
    fewest = fewest_acknowledgements(copies, domains)
    if acknowledgements >= fewest:
        return ""
    return (
        f"{acknowledgements} acknowledgements of {copies} copies do not prove that an entry is in {domains} {what}s: while only {domains} {what}s are left, "
        f"{domains - 1} may hold {fewest - 1} of them. Ask for {fewest} or more"
    )
