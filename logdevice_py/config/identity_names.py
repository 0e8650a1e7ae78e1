"""Names in certificates (URIs): which node, which principal of which cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import NODE_ID_MAX, NodeId
from logdevice_py.core.principal import Principal, check_principal_name

_URI: Final = re.compile(
    r"logdevice://([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/(node|principal|group)/(.+)"
)
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,4}")
SCHEME: Final = "logdevice://"


@dataclass(frozen=True, slots=True)
class CertifiedNames:
    """What a certificate says of a cluster's nodes and principals."""

    node: NodeId | None = None
    principal: Principal | None = None


def format_uuid(uuid: bytes) -> str:
    """As people write it."""
    text = uuid.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def node_uri(cluster: bytes, node: NodeId) -> str:
    """Names a node."""
    return f"{SCHEME}{format_uuid(cluster)}/node/{node}"


def principal_uris(cluster: bytes, principal: Principal) -> list[str]:
    """Name a principal, and its groups."""
    begin = f"{SCHEME}{format_uuid(cluster)}"
    return [f"{begin}/principal/{principal.name}", *(f"{begin}/group/{group}" for group in sorted(principal.groups))]


def certified_names(uris: Iterable[str], common_name: str, cluster: bytes) -> CertifiedNames:
    """What a certificate names.

    Args:
        uris: its alternative names that are URIs.
        common_name: of its subject: names the principal where no URI of ours does, as in certificates of others' making. Never a node.
        cluster: whose names count.
    """
    node: NodeId | None = None
    names: list[str] = []
    groups: set[str] = set()
    ours = False
    for uri in uris:
        ours = ours or uri.startswith(SCHEME)
        match = _URI.fullmatch(uri)
        if match is None or match[1] != format_uuid(cluster):
            continue
        if match[2] == "node" and _INDEX.fullmatch(match[3]) and int(match[3]) <= NODE_ID_MAX:
            node = NodeId(int(match[3]))
        elif match[2] == "principal" and _is_name(match[3]):
            names.append(match[3])
        elif match[2] == "group" and _is_name(match[3]):
            groups.add(match[3])
    if not ours and _is_name(common_name):
        names.append(common_name)
    # two names would let one that is allowed little pass for one that is allowed more
    principal = Principal(names[0], frozenset(groups)) if len(names) == 1 else None
    return CertifiedNames(node, principal)


def _is_name(text: str) -> bool:
    try:
        check_principal_name(text)
    except ValueError:
        return False
    return True
