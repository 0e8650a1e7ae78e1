"""``ldctl identity``: certificates and tokens for a cluster, from an authority (CA) of its own."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.cli.program import EXIT_OK, parse_timeout, say
from ldquery.ctl.verb import PROGRAM, Verb, show, show_rows
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import parse_security
from logdevice_py.core.principal import Principal, check_principal_name
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.certificates import NODE_DAYS, PRINCIPAL_DAYS, CertificateAuthority

if TYPE_CHECKING:
    from client.client import Client

_DIRECTORY: Final = "identity"
_NODE: Final = re.compile(r"N\d+")
_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}")


def _name(text: str) -> str:
    try:
        check_principal_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 3650:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days: 1 to 3650")
    return int(text)


def _directory_option(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="where keys and certificates are (default: identity, beside the cluster file)",
    )


def _groups_option(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--group",
        type=_name,
        action="append",
        default=[],
        metavar="GROUP",
        help="a group that it belongs to; may be given several times",
    )


def _make_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "principals", nargs="*", type=_name, metavar="PRINCIPAL", help="whom to make a certificate for, like svc-clicks"
    )
    _groups_option(options)
    options.add_argument(
        "--days", type=_days, help=f"how long they count (default: {NODE_DAYS} for nodes, {PRINCIPAL_DAYS} for others)"
    )
    options.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address under which principals serve others, as ldindexd does; may be given several times",
    )
    options.add_argument("--renew", action="store_true", help="also for nodes that have one")
    _directory_option(options)


def _token_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("principal", type=_name, metavar="PRINCIPAL", help="whom it names, like svc-clicks")
    _groups_option(options)
    options.add_argument(
        "--lifetime",
        type=parse_timeout,
        default=3600.0,
        metavar="T",
        help="how long it counts, like 15min, a day at most (default: 1h)",
    )
    _directory_option(options)


def _revoke_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "serial", metavar="SERIAL", help="serial number of a certificate, in hexadecimal, as make prints it"
    )
    _directory_option(options)


def _config(arguments: argparse.Namespace) -> ClusterConfig:
    path = Path(arguments.config)
    try:
        return load_cluster(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"cannot read {path}: {error}") from None


def _authority(arguments: argparse.Namespace, config: ClusterConfig) -> CertificateAuthority:
    directory = arguments.dir or Path(arguments.config).parent / _DIRECTORY
    return CertificateAuthority(directory, config.uuid)


async def _make(client: Client | None, arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    for name in arguments.principals:
        if _NODE.fullmatch(name):
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"{name} is the name of a node, and would be no node's certificate: nodes of {arguments.config} get theirs without being named. When it "
                f"was added since: ldctl config show --to {arguments.config}, then again",
            )
    authority = _authority(arguments, config)
    if authority.make():
        say(PROGRAM, f"made an authority in {authority.directory}: keep ca.key and token.key there, on no node")
    if config.epoch_store.startswith("zookeeper:") and authority.make_zookeeper_auth():
        say(PROGRAM, "made zookeeper.auth, a password of the nodes at ZooKeeper: name it in zookeeper_auth_file")
    rows: list[dict[str, Any]] = []
    for node, member in config.nodes.items():
        if arguments.renew or not (authority.directory / f"N{node}.pem").exists():
            made = authority.certify_node(node, arguments.days or NODE_DAYS, host=member.host)
            rows.append({"name": f"N{node}", "serial": made.serial, "file": str(made.path)})
    for name in arguments.principals:
        principal = Principal(name, frozenset(arguments.group))
        days = arguments.days or PRINCIPAL_DAYS
        made = authority.certify_principal(principal, days, hosts=arguments.host)
        rows.append({"name": name, "serial": made.serial, "file": str(made.path)})
    if rows:
        show_rows(arguments, rows, ("name", "serial", "file"))
    else:
        nodes = ", ".join(f"N{node}" for node in config.nodes)
        say(
            PROGRAM,
            f"all nodes of {arguments.config} have certificates ({nodes}): --renew makes others, a name one of a principal",
        )
    if not parse_security(config.settings).ca_file:
        say(
            PROGRAM, "the cluster file does not name them yet: docs/security.md says what goes into [settings.security]"
        )
    return EXIT_OK


async def _token(client: Client | None, arguments: argparse.Namespace) -> int:
    authority = _authority(arguments, _config(arguments))
    token = authority.make_token(Principal(arguments.principal, frozenset(arguments.group)), int(arguments.lifetime))
    show(arguments, {"token": token}, plain=token)
    return EXIT_OK


async def _revoke(client: Client | None, arguments: argparse.Namespace) -> int:
    serial = arguments.serial.replace(":", "").lower()
    if not _SERIAL.fullmatch(serial):
        raise LogDeviceError(Status.INVALID_PARAM, f"{arguments.serial!r} is no serial number in hexadecimal")
    authority = _authority(arguments, _config(arguments))
    authority.revoke(serial)
    show(
        arguments,
        {"revoked": serial},
        plain=f"{serial} is on the list; nodes that have this file read it within a second",
    )
    return EXIT_OK


VERBS: tuple[Verb, ...] = (
    Verb(
        "identity make",
        "make an authority, and certificates for nodes and principals",
        "Make an authority (CA) where there is none, a certificate for each node of the cluster file that has none, and one for each principal that is named. "
        "Each file holds a certificate and its key. Nothing of the cluster is asked or changed.",
        _make_options,
        _make,
        needs_client=False,
    ),
    Verb(
        "identity token",
        "sign a token that names a principal for a while",
        "Print a token, signed with token.key: who shows it over TLS is that principal until it expires. Nodes believe it where token_key_file names token.pem.",
        _token_options,
        _token,
        needs_client=False,
    ),
    Verb(
        "identity revoke",
        "put a certificate on the list of those that count no longer",
        "Put a serial number into revoked.txt. Nodes read the file that revoked_file names again when it changes, and end connections of such certificates.",
        _revoke_options,
        _revoke,
        needs_client=False,
    ),
)
