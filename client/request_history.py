"""What became of a request so far, in words: whom it went to, what was answered, who is silent. Requests that run out of time end with it."""

from __future__ import annotations

from collections.abc import Iterable

from client.links import Links
from logdevice_py.core.ids import NodeId, PeerId, ShardId, format_shard, node_peer
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import TRAITS, Status
from logdevice_py.core.units import MILLISECOND, SECOND


def format_wait(micros: int) -> str:
    """How long something took, for people: ``3.1 s``, ``40 ms``."""
    return f"{micros / SECOND:.1f} s" if micros >= SECOND else f"{max(0, micros) // MILLISECOND} ms"


def name_asked(node: NodeId, asked_us: int, links: Links) -> str:
    """A node that was asked so long ago, as what is waited for."""
    if links.is_up(PeerId(node)):
        return f"N{node} to answer, asked {format_wait(asked_us)} ago"
    return f"a connection to N{node}, for {format_wait(asked_us)}"


def name_awaited(shards: Iterable[ShardId], links: Links) -> str:
    """Shards that do not answer, as what is waited for; empty when there are none."""
    silent: list[str] = []
    unreached: list[str] = []
    for shard in shards:
        (silent if links.is_up(node_peer(shard)) else unreached).append(format_shard(shard))
    parts = [f"{', '.join(silent)} to answer"] if silent else []
    parts += [f"a connection to {', '.join(unreached)}"] if unreached else []
    return " and ".join(parts)


class RequestHistory:
    """Of one request. It grows with what goes wrong: a kind of answer by a node is kept once, with how often it came."""

    __slots__ = ("_redirects", "_refusals", "_silences", "_turn")

    def __init__(self) -> None:
        self._redirects = 0
        self._turn: tuple[NodeId, NodeId] | None = None
        self._refusals: dict[Status, dict[str, int]] = {}
        self._silences: dict[str, int] = {}

    def redirected(self, sender: NodeId, to: NodeId) -> None:
        """A node named another one."""
        self._redirects += 1
        self._turn = (sender, to)

    def refused(self, who: str, status: Status) -> None:
        """Somebody (``N2``, ``N2:S0``, or nobody in particular) does not do it, or could not be reached."""
        by = self._refusals.setdefault(status, {})
        by[who] = by.get(who, 0) + 1

    def unanswered(self, who: str) -> None:
        """Somebody was asked and did not answer in time."""
        self._silences[who] = self._silences.get(who, 0) + 1

    def tells_of(self, status: Status) -> bool:
        """Whether somebody refused so."""
        return status in self._refusals

    def explain(self, waits_for: str, epoch: Epoch = Epoch(0), told: str = "") -> str:
        """What is waited for, with what happened before.

        Args:
            waits_for: what is waited for.
            epoch: the highest of the log that was heard of; 0: none.
            told: what a node said of it.
        """
        parts = [waits_for, told] if told else [waits_for]
        if epoch:
            parts.append(f"the log is in epoch {epoch}, as far as is known")
        if self._turn is not None:
            sender, to = self._turn
            parts.append(f"redirected {_times(self._redirects)}, last by N{sender} to {_node(to)}")
        if self._silences:
            parts.append(f"no answer came from {_listed(self._silences)}")
        parts += [f"{status.name}{_by(by)}: {TRAITS[status].meaning}" for status, by in sorted(self._refusals.items())]
        return "; ".join(parts)


def describe_timeout(waited_us: int, waits_for: str) -> str:
    """Of a request that ran out of time."""
    return f"after {format_wait(waited_us)} it waited for {waits_for}"


def _node(node: NodeId) -> str:
    return f"N{node}" if node >= 0 else "nobody"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{who} ({_times(count)})" if count > 1 else who for who, count in sorted(counts.items()))


def _by(by: dict[str, int]) -> str:
    named = {who: count for who, count in by.items() if who}
    return f" from {_listed(named)}" if named else ""
