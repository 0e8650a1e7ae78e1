"""The public face: ``from logdevice_py import Client, BufferedWriter, LSN, ...``. Names resolve when they are used first."""

# Completion in notebooks and editors offers every name that stands here without an underscore.
import typing as _typing
from importlib import import_module as _import_module
from importlib import util as _util
from pathlib import Path as _Path

if _typing.TYPE_CHECKING:
    from client.buffered_writer import BufferedWriter as BufferedWriter
    from client.client import Client as Client
    from client.encryption import EncryptionKeys as EncryptionKeys
    from client.guards import START as START
    from client.guards import GuardError as GuardError
    from client.guards import Position as Position
    from client.identity import ClientIdentity as ClientIdentity
    from client.log_tree.client_log_tree import LogTreeEntry as LogTreeEntry
    from client.read.batch import RecordBatch as RecordBatch
    from client.read.items import CorruptRecord as CorruptRecord
    from client.read.items import DataLoss as DataLoss
    from client.read.items import Gap as Gap
    from client.read.items import GapKind as GapKind
    from client.read.items import Record as Record
    from client.read.proof import Proof as Proof
    from client.reader import Reader as Reader
    from client.receipt import Receipt as Receipt
    from client.receipt import Receipts as Receipts
    from client.replica.commands import NOTHING as NOTHING
    from client.sync import SyncClient as SyncClient
    from ldquery.result import QueryResult as QueryResult
    from ldquery.session import LDQuery as LDQuery
    from logdevice_py.core.lsn import LSN as LSN
    from logdevice_py.core.status import LogDeviceError as LogDeviceError
    from logdevice_py.core.status import Status as Status
    from server.dev.local_cluster import LocalCluster as LocalCluster
    from server.simulation.cluster import SimCluster as SimCluster
    from server.simulation.cluster import SimulationFailed as SimulationFailed
    from server.simulation.cluster import simulate as simulate
    from streams.attributes import Flush as Flush
    from streams.attributes import Roll as Roll
    from streams.namespace import Namespace as Namespace
    from streams.reading import IdleReader as IdleReader
    from streams.reading import StreamReaderState as StreamReaderState
    from streams.records import TxId as TxId
    from streams.stream import Stream as Stream
    from streams.stream_subscriptions import Subscription as Subscription
    from streams.sync import SyncNamespace as SyncNamespace
    from streams.watching import OwnerChange as OwnerChange
    from streams.watching import SegmentChange as SegmentChange
    from streams.writers import StreamOwned as StreamOwned

_HOME = {
    "SegmentChange": "streams.watching",
    "OwnerChange": "streams.watching",
    "NOTHING": "client.replica.commands",
    "ClientIdentity": "client.identity",
    "BufferedWriter": "client.buffered_writer",
    "Client": "client.client",
    "CorruptRecord": "client.read.items",
    "DataLoss": "client.read.items",
    "EncryptionKeys": "client.encryption",
    "Gap": "client.read.items",
    "GapKind": "client.read.items",
    "GuardError": "client.guards",
    "LDQuery": "ldquery.session",
    "LSN": "logdevice_py.core.lsn",
    "LocalCluster": "server.dev.local_cluster",
    "LogTreeEntry": "client.log_tree.client_log_tree",
    "LogDeviceError": "logdevice_py.core.status",
    "Position": "client.guards",
    "Receipt": "client.receipt",
    "Receipts": "client.receipt",
    "Proof": "client.read.proof",
    "QueryResult": "ldquery.result",
    "Reader": "client.reader",
    "Record": "client.read.items",
    "START": "client.guards",
    "RecordBatch": "client.read.batch",
    "SimCluster": "server.simulation.cluster",
    "SimulationFailed": "server.simulation.cluster",
    "Status": "logdevice_py.core.status",
    "SyncClient": "client.sync",
    "simulate": "server.simulation.cluster",
    "Flush": "streams.attributes",
    "IdleReader": "streams.reading",
    "Namespace": "streams.namespace",
    "StreamReaderState": "streams.reading",
    "Roll": "streams.attributes",
    "Stream": "streams.stream",
    "Subscription": "streams.stream_subscriptions",
    "StreamOwned": "streams.writers",
    "SyncNamespace": "streams.sync",
    "TxId": "streams.records",
}
_EXTRAS = {
    "LDQuery": "query",
    "LocalCluster": "server",
    "QueryResult": "query",
    "SimCluster": "server",
    "SimulationFailed": "server",
    "simulate": "server",
}
"""What brings the packages that a name needs besides those of the client."""
_ROOT = _Path(__file__).parent.parent
__all__ = [
    "LSN",
    "NOTHING",
    "START",
    "BufferedWriter",
    "Client",
    "ClientIdentity",
    "CorruptRecord",
    "DataLoss",
    "EncryptionKeys",
    "Flush",
    "Gap",
    "GapKind",
    "GuardError",
    "IdleReader",
    "LDQuery",
    "LocalCluster",
    "LogDeviceError",
    "LogTreeEntry",
    "Namespace",
    "OwnerChange",
    "Position",
    "Proof",
    "QueryResult",
    "Reader",
    "Receipt",
    "Receipts",
    "Record",
    "RecordBatch",
    "Roll",
    "SegmentChange",
    "SimCluster",
    "SimulationFailed",
    "Status",
    "Stream",
    "StreamOwned",
    "StreamReaderState",
    "Subscription",
    "SyncClient",
    "SyncNamespace",
    "TxId",
    "simulate",
]


def __getattr__(name: str) -> _typing.Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    _must_be_ours(home.partition(".")[0])
    try:
        value = getattr(_import_module(home), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if name not in _EXTRAS or missing == home.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{name} needs {missing}, which is not installed: pip install 'logdevice-py[{_EXTRAS[name]}]'",
            name=error.name,
        ) from None
    globals()[name] = value
    return value


def _must_be_ours(package: str) -> None:
    """A script of the user's called client.py would be imported in place of our package of that plain name."""
    spec = _util.find_spec(package)  # finds, does not run
    found = spec.origin if spec else None
    if found is None or _Path(found).parent.parent != _ROOT:
        raise ImportError(
            f"logdevice_py needs its own package {package!r} from {_ROOT}, "
            f"but Python finds {found}; rename that file or start Python with -P"
        )


def __dir__() -> list[str]:
    return sorted(__all__)
