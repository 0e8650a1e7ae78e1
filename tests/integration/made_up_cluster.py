"""The console's pages without a node behind them: a server gives a browser the files, and what they ask for is made up. Names of columns are those of tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from server.console.console import EVENTS, PREFIX
from server.console.pages import pages


@asynccontextmanager
async def made_up_console(answers: Mapping[str, Any]) -> AsyncIterator[str]:
    """The address of a console.

    Args:
        answers: by the name of the question; `state` is told as the first event, and none follows.
    """
    ended = asyncio.Event()
    files = pages()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path in files:
            return await files[request.path](request)
        if request.path != EVENTS:
            return web.json_response(answers[request.path.removeprefix(PREFIX)])
        told = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await told.prepare(request)
        await told.write(f"event: state\ndata: {json.dumps(answers['state'])}\n\n".encode())
        await ended.wait()
        return told

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        ended.set()
        await runner.cleanup()


def state_of(nodes: int, racks: int) -> dict[str, Any]:
    """A cluster where all is well."""
    return {
        "cluster": "made-up",
        "node": 0,
        "version": 1,
        "nodes": [_node(number, f"rack{number % racks}") for number in range(nodes)],
        "logs": 1000,
        "busiest": [
            {"log": log, "path": f"/team/{log}", "node": log, "entries": 90.5, "bytes": 1_000_000 // log}
            for log in range(1, 9)
        ],
        "problems": [],
        "notes": [],
        "waits": [],
        "waits_left_out": 0,
        "rebuildings": [],
        "interval": 2.0,
    }


def _node(number: int, rack: str) -> dict[str, Any]:
    shard = {
        "shard": 0, "generation": 1, "status": "OK", "accepting_writes": 1, "no_space": 0, "previous_stop": "CLEAN", "damaged_ranges": 0, "logs": 200,
        "read_streams": 3, "partitions": 12, "dirty_logs": 0, "scrubbing_log": None, "verified_since": 1_790_000_000_000_000, "stored_bytes": 10**9 * (number + 1),
    }  # fmt: skip
    return {
        "node": number, "address": f"10.0.0.{number}:16110", "admin_port": 16111, "place": ["eu", f"dc{number % 2}", "", "", rack], "roles": ["sequencer", "storage"],
        "storage_state": "READ_WRITE", "answers": True, "silence": "", "seen_as": [["ALIVE", 59]], "readiness": "OK", "start_time": 1_790_000_000_000_000,
        "version": "0.2.0", "python": "3.11", "pid": 100 + number, "shards": [shard], "entries": 20.5, "bytes": 100_000, "busy_logs": 15,
    }  # fmt: skip


def logs_of(count: int) -> dict[str, Any]:
    """Logs that are written to."""
    return {"logs": [_log(number) for number in range(1, count + 1)], "left_out": 0, "silent": {}, "took_us": 100_000}


def _log(number: int) -> dict[str, Any]:
    return {
        "log_id": number, "path": f"/team{number % 20}/service-{number % 7}/events/{number}", "copies": "OK", "entries_1min": 10.5 + number % 13, "bytes_1min": 1000.0 * number,
        "sequencer_node_id": number % 60, "epoch": 3, "head": "e1n1", "tail": f"e3n{number * 17}", "stored_bytes": 10**6 * number, "replicate": "rack:2,node:3",
        "newest_time": 1_790_000_000_000_000 + number * 1_000_003,
    }  # fmt: skip


TIME: Final = 1_790_000_000_000_000


def everything() -> dict[str, Any]:
    """An answer to each question, of a cluster where something of each kind is there and much is wrong."""
    state = state_of(6, 3)
    state["nodes"][2]["answers"] = False
    state["notes"] = ["N5:S0 is drained"]
    state["problems"] = [
        {"severity": "bad", "where": "N2", "what": "does not answer", "do": "Start it again", "page": "waits"},
        {"severity": "warn", "where": "N3:S0", "what": "takes no records", "do": "Nothing", "page": "shards"},
    ]
    state["waits"] = [
        {"node": 1, "shard": 0, "kind": "APPEND", "log": "1", "path": "/a", "cause": "NODE_DEAD", "means": "it is dead", "shards": "N2:S0", "lsn": "e1n1", "waiting": 2,
         "seconds": 9, "detail": "", "quiet": False}
    ]  # fmt: skip
    state["rebuildings"] = [
        {"rebuilding_shard": "N5:S0", "generation": 1, "mode": "RELOCATE", "status": "rebuilding", "authoritative_status": "FULLY_AUTHORITATIVE", "recoverable": 1,
         "donors_left": "N0:S0", "rate": 1000, "pace": None, "source": "maintenance", "since": "e1n7"}
    ]  # fmt: skip
    return {
        "state": state,
        "logs": logs_of(100),
        **_of_streams(),
        **_of_index_logs(),
        "maintenances": _maintenances(),
        "records": _records(),
        "access": {
            "from": "127.0.0.1", "token": "not shown", "principal": "ops", "principal_groups": ["bi"], "proof": "certificate", "certificate": "/c.pem", "expires": TIME,
            "tls": "require", "permissions": True, "administrator": False, "left_out": 0,
            "groups": [{"path": "/a", "logs": 3, "permit": "read:group/bi", "append": False, "read": True, "trim": False}],
        },
        "check": {
            "safe": False, "verdict": "not safe: N2", "advice": ["bring N1 back first"], "before": [],
            "losses": [{"loses": "DATA", "logs": 3, "which": "/a", "missing then": "N1:S0", "means": "copysets may lie there alone"}],
        },
        "sql": {"tables": [{"name": "info", "rows": "A node.", "required": [], "columns": [["node_id", "integer"]]}]},
    }  # fmt: skip


def _of_streams() -> dict[str, Any]:
    log = {"tail": "e4n88", "head": "e1n1", "entries_1min": 2.5, "bytes_1min": 100.0, "stored_bytes": 9000, "newest_time": TIME, "sequencer_node_id": 2, "copies": "OK"}  # fmt: skip
    rows = [
        {"namespace": "/streams", "stream": name, "number": 1, "state": state, "log_id": 4001, "writers": "exclusive", "txid": "writer", "begins_at": "e1n2+0", "end_lsn": None,
         "version": "e1n1+0", "owner": "host:1", "log": log}
        for name, state in (("a", "live"), ("b", "ended"), ("c", "deleting"))
    ]  # fmt: skip
    subscriptions = [
        {"namespace": "/streams", "subscription": name, "stream": "a", "number": 1, "position": position, "committed": position and TIME, "commits": 8, "shared": 1,
         "owner": None, "token": 0, "tail": "e4n88", "behind": behind, "waiting_since": TIME}
        for name, position, behind in (("near", "e4n80+0", 8), ("there", "e4n88+0", 0), ("far", "e3n1+0", None), ("new", None, None))
    ]  # fmt: skip
    segment = {
        "epoch": 4, "state": "in progress", "first_lsn": "e4n1", "last_lsn": "e4n88", "records": 4, "bytes": 5, "first_time": TIME, "last_time": TIME, "first_txid": 1,
        "last_txid": 7, "lost": 2, "trimmed_to": None,
    }  # fmt: skip
    owner = {"owner": "host:1", "token": 3, "lease": 5_000_000, "signs": 7}
    janitor = {"namespace": "/streams", "janitor": None, "at": TIME, "did": "trimmed a to e1n1", "unattended": ["a", "b"], "unattended_count": 7}  # fmt: skip
    copy = {"epoch": 2, "first": "e2n1", "last": "e2n90", "records": 900, "files": 1, "stored_bytes": 9000, "began": TIME, "ended": TIME, "completed": TIME, "folder": "x/y"}  # fmt: skip
    kept = {
        "attributes": {"ttl": "3d", "cold": "file:///cold"}, "trimmed_to": "e1n1", "copied_to": "e2n90", "copying": "e3n1 to e3n9", "copies_count": 1, "copies_bytes": 9000,
        "copies": [copy],
    }  # fmt: skip
    return {
        "streams": {"namespaces": ["/streams"], "streams": rows, "subscriptions": subscriptions, "left_out": 0, "silent": {}, "took_us": 9, "janitors": [janitor]},
        "stream": {"stream": rows[0], "janitor": janitor, "kept": kept, "tail": "e4n88", "segments": [segment], "owner": owner, "subscriptions": subscriptions, "took_us": 9},
    }  # fmt: skip


def _of_index_logs() -> dict[str, Any]:
    of_index = {"index_log": "/indexlog", "index_code": "books", "records": 43, "bytes": 3982}
    file = {
        "kind": "unsorted",
        "name": "n",
        "path": "1/x",
        "batch": 1,
        "timestamp": TIME,
        "made": 1,
        "since": 1,
        "until": 1,
    }
    log = {
        "index_log": "/indexlog", "store": "file:///srv", "state": 2, "indexes": 1, "parts": 14, "records": 300, "bytes": 27790, "retired": 1, "forgotten": 0, "jobs": 1,
        "drops": 0, "unreadable": 0,
    }  # fmt: skip
    raw = {
        "index_log": "/indexlog", "generation": 0, "log_id": 9, "dealt_lsn": "e1n1", "tail_lsn": "e1n7", "end_lsn": None, "is_dealt": 0, "waiting": 6, "waiting_since": TIME,
    }  # fmt: skip
    return {
        "index-logs": {
            "index_logs": [log],
            "raw_logs": [raw],
            "jobs": [{"index_log": "/indexlog", "token": 4, "began": TIME, "files": 2}],
            "indexes": [{**of_index, "unsorted": 2, "sorted": 0, "optimized": 0}],
            "took_us": 9,
        },
        "index-files": {
            "index_log": "/indexlog",
            "index": "books",
            "files": [{**of_index, **file, "retired": each, "retired_at": each and TIME} for each in (None, 2)],
            "left_out": 0,
            "took_us": 9,
        },
    }


def _maintenances() -> dict[str, Any]:
    def one(number: int, who: str, phase: str, *reasons: str) -> dict[str, Any]:
        return {
            "number": number, "who": who, "kind": "may disappear", "phase": phase, "for": "2h", "by": "ann@ops1", "reason": "disk", "restart": 3, "since": TIME,
            "expires": TIME, "shards": [f"{who}:S0"], "reasons": list(reasons),
        }  # fmt: skip

    live = [one(7, "N1", "granted"), one(8, "N4", "waiting", "DATA: /a: alone"), one(9, "N5", "draining")]
    restart = {"number": 3, "by": "ann@ops1", "reason": "", "began": TIME, "left": ["N4"], "done": ["N0"]}
    return {"enabled": True, "live": live, "ended": [one(6, "N0", "over: done")], "restart": restart, "took_us": 9}


def _records() -> dict[str, Any]:
    items = [
        *({"gap": kind, "lo": "e0n1", "hi": "e1n0", "loss": ""} for kind in ("BRIDGE", "DATALOSS")),
        {"lsn": "e1n1", "offset": 0, "time": TIME, "key": "61", "size": 3, "payload": "616263"},
        {"lsn": "e1n2", "offset": 0, "time": TIME, "corrupt": True},
    ]
    return {"path": "/a", "log": 1, "tail": "e1n9", "from": "e1n1", "next": None, "previous": None, "note": "", "items": items}  # fmt: skip
