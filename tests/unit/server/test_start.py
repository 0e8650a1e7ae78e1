"""What a node loads when it starts: each second of a processor is one for every node of a cluster, and each megabyte as well."""

from __future__ import annotations

import json
import subprocess
import sys

LATER = {"aiohttp", "cryptography", "indexlog", "jwt", "ldquery", "pyarrow", "streams"}
"""What duties, the console, TLS and tools need: processes of their own, or nodes that are configured so."""


def test_a_node_starts_without_what_only_others_need() -> None:
    code = "import sys, json, server.logdeviced; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert "storage_node" in loaded
    assert loaded & LATER == set()
