"""TLS over real sockets with real certificates: who is believed, who is turned away, and certificates that change under way. openssl's own client is
the outsider."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.identity import ClientIdentity, client_contexts
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import InstanceId, NodeId, PeerId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import Status
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import Append
from logdevice_py.runtime import transport as transport_module
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.runtime.handshakes import HandshakeQueue
from logdevice_py.runtime.tls import TlsContexts, TlsFiles
from logdevice_py.runtime.tokens import TokenChecker
from logdevice_py.runtime.transport import Transport
from logdevice_py.shell.introduction import Identity, Introduction, no_tokens
from logdevice_py.shell.proof import Principals
from logdevice_py.shell.settings import RuntimeSettings
from server.dev import layout
from server.dev.dev_cluster import make_config
from tests.integration.appends import an_append
from tests.integration.test_transport import HOST, UUID, Recorder, Turns, release

REQUIRE = SecuritySettings(tls="require")
ACCEPT = SecuritySettings(tls="accept")
OFF = SecuritySettings()
CLICKS = Principal("svc-clicks", frozenset({"bi"}))
Addresses = dict[int, tuple[str, int]]


class Secure:
    """One process, and what it saw."""

    def __init__(self, transport: Transport, principals: Principals, seen: Recorder) -> None:
        self.transport = transport
        self.principals = principals
        self.seen = seen

    async def trouble(self, node: int = 0) -> Any:
        """Why a node cannot be reached."""
        self.transport.connect(NodeId(node))
        await self.seen.until(lambda: PeerId(node) in self.transport.troubles())
        return self.transport.troubles()[PeerId(node)]

    async def reaches(self, node: int = 0) -> None:
        """A node lets it in."""
        self.transport.connect(NodeId(node))
        await self.seen.until(lambda: node in self.seen.up)


class Certificates:
    """Those of a cluster, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority(directory, UUID)
        self.authority.make()
        for node in (0, 1):
            self.authority.certify_node(NodeId(node))
        self.authority.certify_principal(CLICKS)

    def contexts(self, name: str | None, ca: Path | None = None) -> TlsContexts:
        certificate = None if name is None else self.directory / f"{name}.pem"
        return TlsContexts(
            TlsFiles(ca or self.directory / "ca.pem", certificate, None, self.directory / "revoked.txt"), UUID
        )

    @asynccontextmanager
    async def process(
        self,
        node: int,
        addresses: Addresses,
        name: str | None = None,
        security: SecuritySettings = REQUIRE,
        *,
        contexts: TlsContexts | None = None,
        token: str = "",
        listen_as: int | None = None,
        **settings: int,
    ) -> AsyncIterator[Secure]:
        """A process with the certificate of that name. listen_as: at the address of another node."""
        recorder, principals = Recorder(), Principals()
        tls = None if security.tls == "off" else contexts or self.contexts(name)
        transport = Transport(
            Identity("c", UUID, NodeId(node), InstanceId(1), 1, token=token),
            recorder,
            addresses.get,  # type: ignore[arg-type]
            settings=RuntimeSettings(**settings),
            rng=random.Random(node),
            security=security,
            principals=principals,
            tls=tls,
            check_token=TokenChecker(self.directory / "token.pem", UUID) if node >= 0 else no_tokens,
        )
        if node >= 0:
            addresses[node if listen_as is None else listen_as] = (HOST, await transport.listen(HOST, 0))
        try:
            yield Secure(transport, principals, recorder)
        finally:
            await transport.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("identity"))


@pytest.fixture
def addresses() -> Addresses:
    return {}


def large(number: int) -> Append:
    return an_append(bytes([number % 256]) * 3_000_000, number)


async def openssl(*arguments: str, send: bytes = b"") -> str:
    """What openssl's client says of a connection."""
    process = await asyncio.create_subprocess_exec(
        "openssl",
        "s_client",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        out, _ = await process.communicate(send)
    return out.decode(errors="replace")


async def test_messages_small_and_large_keep_their_order(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "N0") as zero, made.process(1, addresses, "N1") as one:
        sent: list[Any] = []
        for number in range(1, 200):
            message = large(number) if number % 40 == 0 else release(number)
            sent.append(message)
            zero.transport.send(PeerId(1), message)
            if number % 20 == 0:
                zero.transport.flush()
                await asyncio.sleep(0)
        zero.transport.flush()
        await one.seen.until(lambda: len(one.seen.messages) == len(sent))
        assert [message for _, message in one.seen.messages] == sent
        assert {peer for peer, _ in one.seen.messages} == {0}


async def test_a_client_is_the_principal_of_its_certificate(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "N0") as node:
        async with made.process(-1, addresses, "svc-clicks") as client, made.process(-1, addresses) as stranger:
            await client.reaches()
            await stranger.reaches()
            assert (client.principals.own, stranger.principals.own) == ("svc-clicks", "anonymous")
            await node.seen.until(lambda: len(node.seen.up) == 2)
            who = [node.principals.of(peer) for peer in node.seen.up]
            assert who[0] == CLICKS
            node.transport.send(node.seen.up[0], large(9))
            node.transport.flush()
            await client.seen.until(lambda: bool(client.seen.messages))
            assert client.seen.messages == [(0, large(9))]
        await node.seen.until(lambda: len(node.seen.down) == 2)
        assert node.principals.of(node.seen.up[0]).name == "anonymous"


async def test_a_token_names_the_principal(made: Certificates, addresses: Addresses) -> None:
    token = made.authority.make_token(Principal("svc-token", frozenset({"bi"})), 60)
    async with made.process(0, addresses, "N0") as node:
        async with made.process(-1, addresses, token=token) as client:
            await client.reaches()
            assert client.principals.own == "svc-token"
            assert "group/bi" in node.principals.of(node.seen.up[0]).grantees
        async with made.process(-1, addresses, token=token[:-8] + "AAAAAAA=") as forger:
            trouble = await forger.trouble()
            assert trouble.status is Status.ACCESS
            assert "token" in trouble.detail


async def test_clear_text_beside_tls_at_the_same_port(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "N0", ACCEPT) as node:
        async with (
            made.process(-1, addresses, security=OFF) as plain,
            made.process(-1, addresses, "svc-clicks", ACCEPT) as encrypted,
        ):
            await plain.reaches()
            await encrypted.reaches()
        assert [each.name for each in map(node.principals.of, node.seen.up)].count("anonymous") == 2  # both are gone
        assert (plain.principals.own, encrypted.principals.own) == ("anonymous", "svc-clicks")


async def test_clear_text_is_told_why_it_is_not_taken(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "N0") as node, made.process(-1, addresses, security=OFF) as plain:
        trouble = await plain.trouble()
        assert trouble.status is Status.ACCESS
        assert "connect with TLS" in trouble.detail
        assert node.seen.up == []


@pytest.mark.parametrize(
    ("name", "claims"), [("svc-clicks", 1), (None, 1), ("N0", 1)], ids=["client's", "none", "another node's"]
)
async def test_nobody_is_a_node_without_its_certificate(
    made: Certificates, addresses: Addresses, name: str | None, claims: int
) -> None:
    async with made.process(0, addresses, "N0") as node:
        contexts = made.contexts(name)
        contexts._server = made.contexts("N0")._server  # it listens, too
        async with made.process(claims, addresses, contexts=contexts) as false:
            trouble = await false.trouble()
            assert trouble.status is Status.ACCESS
            assert "N1" in trouble.detail
            false.transport.send(PeerId(0), release(1))
        assert node.seen.messages == []


async def test_nothing_is_said_to_one_that_is_not_the_node_that_was_dialled(
    made: Certificates, addresses: Addresses
) -> None:
    async with made.process(1, addresses, "N1", listen_as=0) as wrong:
        async with made.process(-1, addresses, "svc-clicks", token="secret") as client:
            trouble = await client.trouble()
        assert "names N1 of cluster" in trouble.detail
        assert wrong.transport.metrics.messages_received == 0


async def test_a_client_certificate_serves_nobody(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "svc-clicks"), made.process(-1, addresses, "svc-clicks") as client:
        trouble = await client.trouble()
        assert trouble.status is Status.ACCESS


async def test_certificates_of_another_authority_and_expired_ones_are_refused(
    made: Certificates, addresses: Addresses, tmp_path: Path
) -> None:
    other = Certificates(tmp_path / "other")
    old = made.authority.certify_principal(Principal("svc-old"), days=-1 + 1, path=tmp_path / "svc-old.pem")
    expired = made.contexts("svc-clicks")
    async with made.process(0, addresses, "N0") as node:
        mixed = TlsContexts(TlsFiles(made.directory / "ca.pem", other.directory / "svc-clicks.pem"), UUID)
        async with made.process(-1, addresses, contexts=mixed) as client:
            trouble = await client.trouble()
            assert trouble.status in (Status.ACCESS, Status.PROTO), trouble
        async with made.process(-1, addresses, contexts=other.contexts("svc-clicks")) as client:
            trouble = await client.trouble()
            assert trouble.status is Status.ACCESS
            assert "not accepted" in trouble.detail
        late = TlsContexts(TlsFiles(made.directory / "ca.pem", old.path), UUID)
        async with made.process(-1, addresses, contexts=late) as client:
            trouble = await client.trouble()
            assert trouble.status in (Status.ACCESS, Status.PROTO), trouble
        assert node.seen.up == []
    assert expired.revoked == frozenset()


async def test_a_revoked_certificate_ends_its_connection_and_another_is_read_without_a_restart(
    tmp_path: Path, addresses: Addresses
) -> None:
    made = Certificates(tmp_path)
    lost = made.authority.certify_principal(Principal("svc-lost"))
    async with (
        made.process(0, addresses, "N0") as node,
        made.process(-1, addresses, "svc-lost") as client,
        made.process(-1, addresses, "svc-clicks") as other,
    ):
        await client.reaches()
        await other.reaches()
        node.transport.look_at_certificates()
        made.authority.revoke(lost.serial)
        node.transport.look_at_certificates()
        await client.seen.until(lambda: bool(client.seen.down))
        assert (await client.trouble()).detail.endswith("is revoked")
        assert other.seen.down == []
        made.authority.certify_principal(Principal("svc-lost"))
        client.seen.down.clear()
        client.seen.up.clear()
        await client.reaches()


async def test_who_is_signed_by_an_authority_that_is_withdrawn_is_out(tmp_path: Path, addresses: Addresses) -> None:
    made, leaked = Certificates(tmp_path / "own"), Certificates(tmp_path / "leaked")
    leaked.authority.certify_principal(Principal("mallory"))
    both = made.directory / "both.pem"
    own = (made.directory / "ca.pem").read_bytes()
    both.write_bytes(own + (leaked.directory / "ca.pem").read_bytes())
    node_files = TlsFiles(both, made.directory / "N0.pem", None, made.directory / "revoked.txt")
    forged = TlsContexts(TlsFiles(both, leaked.directory / "mallory.pem"), UUID)
    async with (
        made.process(0, addresses, contexts=TlsContexts(node_files, UUID)) as node,
        made.process(-1, addresses, contexts=forged) as mallory,
        made.process(-1, addresses, "svc-clicks") as other,
    ):
        await mallory.reaches()
        await other.reaches()
        node.transport.look_at_certificates()
        (made.directory / "N0.pem").write_text("half a certif")  # what shuts out does not wait for what lets in
        both.write_bytes(own)
        node.transport.look_at_certificates()
        await mallory.seen.until(lambda: bool(mallory.seen.down))
        assert (await mallory.trouble()).status is Status.ACCESS
        assert other.seen.down == []


async def test_a_number_is_revoked_while_another_file_cannot_be_used(tmp_path: Path, addresses: Addresses) -> None:
    made = Certificates(tmp_path)
    lost = made.authority.certify_principal(Principal("svc-lost"))
    async with made.process(0, addresses, "N0") as node, made.process(-1, addresses, "svc-lost") as client:
        await client.reaches()
        (tmp_path / "N0.pem").write_text("half a certif")
        made.authority.revoke(lost.serial)
        node.transport.look_at_certificates()
        await client.seen.until(lambda: bool(client.seen.down))
        assert (await client.trouble()).detail.endswith("is revoked")


async def test_clients_leave_a_node_whose_certificate_is_revoked(tmp_path: Path, addresses: Addresses) -> None:
    directory = tmp_path / "identity"
    made = Certificates(directory)
    config = make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None, secure=True)
    config, file = replace(config, uuid=UUID), layout.cluster_file(tmp_path)
    revoked = (directory / "revoked.txt").read_text()
    (directory / "revoked.txt").unlink()  # not every client gets it
    stolen = made.authority.certify_node(NodeId(0))
    identity = ClientIdentity(certificate=directory / "svc-clicks.pem")
    contexts = client_contexts(config, file, identity)
    assert contexts is not None
    async with (
        made.process(0, addresses, contexts=TlsContexts(TlsFiles(directory / "ca.pem", stolen.path), UUID)),
        made.process(-1, addresses, contexts=contexts, frame_timeout_us=500_000) as client,
    ):
        await client.reaches()
        (directory / "revoked.txt").write_text(f"{revoked}{stolen.serial}\n")
        await client.seen.until(lambda: bool(client.seen.down))
        assert "is revoked" in (await client.trouble()).detail


async def test_whose_token_is_signed_with_a_withdrawn_key_is_out(tmp_path: Path, addresses: Addresses) -> None:
    made = Certificates(tmp_path)
    token = made.authority.make_token(Principal("svc-token"), 60)
    async with (
        made.process(0, addresses, "N0") as node,
        made.process(-1, addresses, token=token) as client,
        made.process(-1, addresses, "svc-clicks") as other,
    ):
        await client.reaches()
        await other.reaches()
        node.transport.look_at_certificates()
        assert client.seen.down == []
        (tmp_path / "token.pem").write_text("no key")
        node.transport.look_at_certificates()
        (tmp_path / "token.key").unlink()
        (tmp_path / "token.pem").unlink()
        made.authority.make()
        await until_down(node, client)
        assert "token is not believed: it is not signed" in (await client.trouble()).detail
        assert other.seen.down == []
        client.transport.identity.token = made.authority.make_token(Principal("svc-token"), 60)
        client.seen.up.clear()
        await client.reaches()


async def until_down(node: Secure, client: Secure) -> None:
    """Until a node that looks at its files every now and then has ended a client's connection."""
    async with asyncio.timeout(20):
        while not client.seen.down:
            node.transport.look_at_certificates()
            await asyncio.sleep(0.02)


async def test_certificates_are_exchanged_under_load(tmp_path: Path, addresses: Addresses) -> None:
    made = Certificates(tmp_path)
    async with made.process(0, addresses, "N0") as zero, made.process(1, addresses, "N1") as one:
        for number in range(1, 21):
            made.authority.certify_node(NodeId(0))
            made.authority.certify_node(NodeId(1))
            assert zero.transport._tls is not None
            zero.transport.look_at_certificates()
            one.transport.look_at_certificates()
            zero.transport.send(PeerId(1), release(number))
            zero.transport.flush()
            async with made.process(-1, addresses, "svc-clicks") as client:
                await client.reaches(number % 2)
        await one.seen.until(lambda: len(one.seen.messages) == 20)
        assert [peer for peer, _ in zero.seen.down if peer >= 0] == []


async def test_files_that_cannot_be_used_leave_those_before_in_use(tmp_path: Path, addresses: Addresses) -> None:
    made = Certificates(tmp_path)
    async with made.process(0, addresses, "N0") as node:
        (tmp_path / "N0.pem").write_text("half a certif")
        node.transport.look_at_certificates()
        async with made.process(-1, addresses, "svc-clicks") as client:
            await client.reaches()


class TestWhileAClusterChangesToTls:
    async def test_nodes_that_do_not_speak_it_yet_are_reached_in_clear_text(
        self, made: Certificates, addresses: Addresses
    ) -> None:
        async with made.process(0, addresses, security=OFF) as old, made.process(1, addresses, "N1", ACCEPT) as new:
            new.transport.send(PeerId(0), release(1))
            old.transport.send(PeerId(1), release(2))
            new.transport.flush()
            old.transport.flush()
            await old.seen.until(lambda: bool(old.seen.messages))
            await new.seen.until(lambda: bool(new.seen.messages))
            assert new.seen.down == []

    @pytest.mark.parametrize(
        ("security", "token"),
        [(REQUIRE, ""), (replace(ACCEPT, permissions=True), ""), (ACCEPT, "secret")],
        ids=["require", "permissions", "token"],
    )
    async def test_who_has_something_to_lose_is_not_talked_out_of_it(
        self, made: Certificates, addresses: Addresses, security: SecuritySettings, token: str
    ) -> None:
        async with made.process(0, addresses, security=OFF) as old:
            async with made.process(-1, addresses, "svc-clicks", security, token=token) as client:
                await client.trouble()
            assert old.seen.up == []
            assert old.transport.metrics.messages_received == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
class TestOpenssl:
    async def test_it_sees_which_node_answers_in_tls_1_3(self, made: Certificates, addresses: Addresses) -> None:
        async with made.process(0, addresses, "N0") as node:
            connect = f"{HOST}:{addresses[0][1]}"
            said = await openssl("-connect", connect, "-CAfile", str(made.directory / "ca.pem"), "-verify_return_error")
            assert "TLSv1.3" in said
            assert "Verify return code: 0 (ok)" in said
            refused = await openssl("-connect", connect, "-tls1_2")
            assert "protocol version" in refused or "no protocols available" in refused
            garbage = await openssl("-connect", connect, "-quiet", send=b"GET / HTTP/1.0\r\n\r\n" * 10)
            assert "HTTP/1" not in garbage
            assert node.seen.up == []

    async def test_its_hello_in_tls_without_a_certificate_makes_it_no_node(
        self, made: Certificates, addresses: Addresses
    ) -> None:
        identity = Identity("c", UUID, NodeId(1), InstanceId(1), 1)
        addresses[1] = (HOST, 1)
        hello = Introduction(identity, lambda node: True, RuntimeSettings(), lambda version: None).hello(NodeId(0))
        async with made.process(0, addresses, "N0") as node:
            said = await openssl("-connect", f"{HOST}:{addresses[0][1]}", "-quiet", send=b"".join(encode_frame(hello)))
            assert "has no certificate of that node" in said
            assert node.seen.up == []


async def test_newcomers_that_say_half_a_word_of_tls_are_closed(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "N0", hello_timeout_us=300_000) as node:
        for begin in (b"\x16", b"\x16\x03\x01\x02\x00" + bytes(100), b"\x00", b"\x16" * 5000):
            reader, writer = await asyncio.open_connection(*addresses[0])
            writer.write(begin)
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()
        async with made.process(-1, addresses, "svc-clicks") as client:
            await client.reaches()
        assert len(node.seen.up) == 1


class HeldQueue(HandshakeQueue[Any]):
    """Lets no handshake go on while it is held: the node has other things to do."""

    __slots__ = ("_joined", "held")

    def __init__(self) -> None:
        super().__init__()
        self.held = True
        self._joined = asyncio.Event()

    def join(self, connection: Any, *, answered: bool) -> None:
        super().join(connection, answered=answered)
        self._joined.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self) < count:
                self._joined.clear()
                await self._joined.wait()

    def next(self) -> Any:
        return None if self.held else super().next()


async def until_closed(address: tuple[str, int]) -> None:
    """A newcomer says nothing until the node has waited for it for too long."""
    reader, writer = await asyncio.open_connection(*address)
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    writer.close()


async def test_the_time_that_a_handshake_is_queued_is_not_held_against_the_newcomer(
    made: Certificates, addresses: Addresses
) -> None:
    async with (
        made.process(0, addresses, "N0", hello_timeout_us=300_000) as node,
        made.process(-1, addresses, "svc-clicks") as client,
    ):
        queue = node.transport.handshakes = HeldQueue()
        client.transport.connect(NodeId(0))
        await queue.until(1)
        await until_closed(addresses[0])
        queue.held = False
        await client.reaches()
        assert client.seen.down == []


async def test_other_things_go_on_between_two_handshakes(
    made: Certificates, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "_HANDSHAKES_US", 0)
    clients = made.contexts("svc-clicks")
    async with made.process(0, addresses, "N0") as node:
        queue = node.transport.handshakes = HeldQueue()
        sockets = [socket.create_connection(addresses[0]) for _ in range(5)]
        for sock in sockets:
            channel = clients.dial()
            channel.shake_hands()
            sock.sendall(channel.take())
        await queue.until(len(sockets))
        queue.held = False
        left = []
        while queue:
            left.append(len(queue))
            await asyncio.sleep(0)
        assert [number for number, before in zip(left, [0, *left], strict=False) if number != before] == [5, 4, 3, 2, 1]
        for sock in sockets:
            sock.close()


async def test_more_bytes_than_a_handshake_takes_end_the_connection(made: Certificates, addresses: Addresses) -> None:
    async with made.process(0, addresses, "N0") as node:
        node.transport.handshakes = HeldQueue()
        reader, writer = await asyncio.open_connection(*addresses[0])
        writer.write(b"\x16" * 1_000_000)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        assert node.transport.metrics.tls_failed == 1
        writer.close()


async def test_of_a_client_whose_frames_wait_little_is_read(
    made: Certificates, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made.process(0, addresses, "N0") as node, made.process(-1, addresses, "svc-clicks") as client:
        await client.reaches()
        Turns(node.seen, monkeypatch, us_per_frame=100)
        sent = 50_000
        for number in range(1, sent + 1):
            client.transport.send(PeerId(0), release(number))
        client.transport.flush()
        kept = 0
        while len(node.seen.messages) < sent:
            (connection,) = node.transport._connections
            assert connection._tls is not None
            kept = max(kept, connection._tls.waiting_bytes)
            await asyncio.sleep(0)
        assert 0 < kept <= 2 * transport_module._CIPHERTEXT_SIZE_MIN
        assert [message.logs[0][1] for _, message in node.seen.messages] == list(range(1, sent + 1))
