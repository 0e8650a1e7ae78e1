"""Prints the words that may stand where somebody types, for the shell that completes them; nothing when that cannot be told.

Every installed program runs this when its first argument is ``--complete-words``. What follows is the kind of words, what is typed of the
word so far, and the command line, which names the cluster file.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from client.cli.options import Words
from client.cluster_file import cluster_file
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import LogGroup, LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.status import LogDeviceError
from server.live_sections import LIVE, is_live

_WORDS_MAX: Final = 1000
_IDS_MAX: Final = 100
_PLACES_AHEAD: Final = 50
"""Of a group whose path is not typed to its end: enough for a shell to go on to the slash behind it."""


def words_of(kind: Words, typed: str, line: Sequence[str]) -> list[str]:
    """The words of a kind that begin with what is typed.

    Args:
        line: the command line, quoted as it was typed or not.

    Raises:
        OSError: the cluster file cannot be read.
        ValueError: it is no text.
        LogDeviceError: it is no cluster file.
    """
    if kind is Words.SETTINGS:
        found: Iterable[str] = _settings()
    else:
        path = _cluster_file(line)
        if path is None:
            return []
        found = _OF_CLUSTER[kind](load_cluster(path.read_text()), typed)
    return list(islice((word for word in dict.fromkeys(found) if word.startswith(typed)), _WORDS_MAX))


def _cluster_file(line: Sequence[str]) -> Path | None:
    """The last one that the command line names, or else the one of who names none."""
    found = cluster_file()
    words = iter([_unquoted(word) for word in line])
    for word in words:
        option, equals, value = word.partition("=")
        if option not in ("-c", "--config", "--dir"):
            continue
        if not equals:
            value = next(words, "")
        if value == "=":  # bash takes --config=FILE for three words
            value = next(words, "")
        found = f"{value}/cluster.toml" if option == "--dir" else value
    return Path(found).expanduser() if found else None


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word))
    except ValueError:
        return word


def _settings() -> Iterator[str]:
    for section, live in LIVE.items():
        for name in sorted(live.names):
            if is_live(section, name):
                yield f"{section.removeprefix('settings.')}.{name.removesuffix('_us')}"


def _nodes(config: ClusterConfig, typed: str) -> Iterator[str]:
    return (f"N{node}" for node in config.nodes)


def _nodes_and_all(config: ClusterConfig, typed: str) -> Iterator[str]:
    yield "all"
    yield from _nodes(config, typed)


def _logs(config: ClusterConfig, typed: str) -> Iterator[str]:
    if typed[:1].isdecimal():
        yield from islice(_ids(config.logs, typed), _IDS_MAX)
        return
    for group in config.logs.groups:
        yield from _names(group, typed)


def _ids(tree: LogTree, typed: str) -> Iterator[str]:
    """Those that begin with these digits, the shortest first."""
    lo = hi = int(typed)
    last = max((group.hi for group in tree.groups), default=0)
    while 0 < lo <= last:
        for group in tree.groups:
            yield from map(str, range(max(lo, group.lo), min(hi, group.hi) + 1))
        lo, hi = lo * 10, hi * 10 + 9


def _names(group: LogGroup, typed: str) -> Iterator[str]:
    if len(group) == 1:
        yield group.path
        return
    places = range(1, len(group) + 1)
    within = typed.startswith(f"{group.path}/")
    yield from (f"{group.path}/{place}" for place in (places if within else places[:_PLACES_AHEAD]))


def _paths(config: ClusterConfig, typed: str) -> Iterator[str]:
    for path in (*config.logs.directories, *(group.path for group in config.logs.groups)):
        parts = path.split("/")
        yield from ("/".join(parts[:count]) for count in range(2, len(parts) + 1))


def _logs_and_paths(config: ClusterConfig, typed: str) -> Iterator[str]:
    yield from _paths(config, typed)
    yield from _logs(config, typed)


_OF_CLUSTER: Final[dict[Words, Callable[[ClusterConfig, str], Iterator[str]]]] = {
    Words.LOGS: _logs,
    Words.PATHS: _paths,
    Words.LOGS_AND_PATHS: _logs_and_paths,
    Words.NODES: _nodes,
    Words.NODES_AND_ALL: _nodes_and_all,
}


def main() -> int:
    """The program. Somebody is typing: errors are not for them to read now."""
    try:
        kind, typed, *line = sys.argv[2:]
        print("\n".join(words_of(Words(kind), typed, line)), flush=True)
    except (OSError, ValueError, LogDeviceError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
