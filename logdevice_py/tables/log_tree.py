"""Tables of the log tree."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG, _LOG, _LSN = (
    ColumnKind.INTEGER,
    ColumnKind.TEXT,
    ColumnKind.FLAG,
    ColumnKind.LOG,
    ColumnKind.LSN,
)


@table("log_tree", TableSource.ANY_NODE)
@dataclass(slots=True)
class LogTreeRow:
    """A directory or group of logs that was made at run time."""

    path: str = column(_TEXT, "Where it is.")
    kind: str = column(_TEXT, "directory or group.")
    state: str = column(
        _TEXT, "live; removing: its logs take nothing any more, and it goes when no node can write to them."
    )
    logid_lo: int | None = column(_LOG, "The first log of a group.")
    logid_hi: int | None = column(_LOG, "The last log of a group.")
    attributes: str = column(_TEXT, "What it sets itself, as in the cluster file, as JSON.")
    version: str = column(_TEXT, "Of its last change, for --expect.")
    hidden: int = column(
        _FLAG, "The cluster file has a group of this path: the logs of this one are reached by id only."
    )


@table("log_tree_replicas", TableSource.EVERY_NODE)
@dataclass(slots=True)
class LogTreeReplicasRow:
    """A node's replica of the log tree. Empty where the tree is not enabled."""

    version: str = column(_TEXT, "Of the tree that it knows: equal versions are equal trees.")
    lsn: int = column(_LSN, "The last command that it applied.")
    groups: int = column(_INTEGER, "Groups in it.")
    removing: int = column(_INTEGER, "Of these, groups that are being removed.")
    is_known: int = column(_FLAG, "It has read everything that was in the tree when the node started.")
    waits_for: str = column(_TEXT, "What holds it up; commands: nothing does.")
    commands: int = column(_INTEGER, "Commands that were ever judged.")
