"""Settings of connections."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Section ``[settings.runtime]`` of the cluster file."""

    hello_timeout_us: int = setting(
        5_000_000, unit="us", lo=10_000, doc="A peer that has not introduced itself within this time is disconnected."
    )
    dial_timeout_us: int = setting(
        2_000_000, unit="us", lo=10_000, doc="A connection that is not established within this time counts as failed."
    )
    redial_us_min: int = setting(
        50_000,
        unit="us",
        lo=1_000,
        doc="Pause after a refused or failed dial before the next one that a message asks for.",
    )
    redial_us_max: int = setting(1_000_000, unit="us", lo=1_000, doc="The longest pause between dials.")
    output_bytes_max: int = setting(
        256 << 20,
        unit="bytes",
        lo=1 << 20,
        doc="A peer that lets more than this pile up unread is disconnected; nothing is lost, it may come back.",
    )
    output_bytes_congested: int = setting(
        4 << 20,
        unit="bytes",
        lo=64 << 10,
        doc="Read streams of a peer pause while more than this waits unread, until a quarter of it is left.",
    )
    output_bytes_total_max: int = setting(
        1 << 30,
        unit="bytes",
        lo=1 << 20,
        doc="While more than this waits to be sent to all peers together, the client for which most waits is disconnected.",
    )
    input_bytes_max: int = setting(
        256 << 20,
        unit="bytes",
        lo=1 << 20,
        doc="Memory for frames of which only a part has come, on all connections together. When it is used up the client's frame that was begun "
        "longest ago is refused, and its connection closed. Nodes count but are not refused.",
    )
    frame_timeout_us: int = setting(
        10_000_000,
        unit="us",
        lo=100_000,
        doc="A connection on which a frame is begun and hardly goes on for this long is closed: less than 6 KiB of it a second.",
    )
    connections_max: int = setting(
        10_000,
        unit="connections",
        lo=1,
        doc="Further clients are refused while this many are connected. Nodes have places beside these.",
    )
    connections_per_address_max: int = setting(
        5_000,
        unit="connections",
        lo=1,
        doc="Further connections from an address are refused while it has this many, introduced as clients or not at all.",
    )
    connections_introducing_max: int = setting(
        1_000,
        unit="connections",
        lo=1,
        doc="While more connections than this have not introduced themselves, the one that has waited longest is closed.",
    )
    connections_per_node_max: int = setting(
        16,
        unit="connections",
        lo=1,
        doc="Further connections that introduce themselves as a certain node are refused while this many are open.",
    )
    client_turn_us: int = setting(
        500,
        unit="us",
        lo=50,
        doc="How long frames of one client are handled in a turn of the event loop; a node gets four times as long. What is left waits for the next turn.",
    )
    clients_turn_us: int = setting(
        1_000, unit="us", lo=50, doc="How long frames of all clients are handled in a turn of the event loop."
    )
    client_credit_us: int = setting(
        5_000,
        unit="us",
        lo=50,
        doc="Time of the event loop that the frames of a client may take before it counts as greedy. A new connection has a turn's.",
    )
    client_share_percent: int = setting(
        5, unit="percent", lo=1, hi=100, doc="How fast a client gets back credit: so much of the time that passes."
    )
    greedy_clients_percent: int = setting(
        10,
        unit="percent",
        lo=1,
        hi=100,
        doc="Share of the time that all greedy clients together get of the event loop while others are served. They get all of it while none is.",
    )
    user_timeout_us: int = setting(
        20_000_000,
        unit="us",
        lo=1_000_000,
        doc="A connection whose sent bytes stay unacknowledged this long is closed (half-open peers).",
    )
    trace_instants: int = setting(
        0,
        unit="instants",
        lo=0,
        hi=1_000_000,
        doc="How many instants of appends a node keeps for the table `append_trace`: when messages about entries arrived and left, when copies were written "
        "and synced. An append makes some ten at each node; one takes 300 bytes, and a few microseconds. 0: none, at no cost.",
    )


@dataclass(slots=True)
class TransportMetrics:
    """Counters of connections."""

    connections: int = gauge("Connections that stand or are being made.", unit="connections")
    connections_accepted: int = counter("Incoming connections accepted.", unit="connections")
    connections_refused: int = counter("Incoming connections turned away at a limit.", unit="connections")
    frames_abandoned: int = counter(
        "Connections closed because a frame that was begun did not go on, or took memory that others needed.",
        unit="connections",
    )
    input_bytes: int = gauge("Memory of frames of which only a part has come.", unit="bytes")
    messages_dropped: int = counter(
        "Messages that were not sent: nobody is connected, or too much waits for the peer. Who sent them hears that the peer is down.",
        unit="messages",
    )
    messages_too_large: int = counter(
        "Messages that were not sent because no frame holds them. Who asked hears nothing; report it.", unit="messages"
    )
    messages_unspoken: int = counter(
        "Messages that were not sent because they came with a later version of the protocol than the peer speaks.",
        unit="messages",
    )
    dials: int = counter("Outgoing connections tried.", unit="connections")
    dials_failed: int = counter("Outgoing connections that were refused or timed out.", unit="connections")
    protocol_errors: int = counter("Connections closed because of bytes that are no message.", unit="connections")
    tls_failed: int = counter(
        "TLS connections that did not come about or failed: wrong certificates, or bytes that are no TLS.",
        unit="connections",
    )
    handshakes_queued: int = gauge(
        "TLS connections whose handshake is queued: more come than the event loop has time for.",
        unit="connections",
    )
    certificate_expiry: int = gauge(
        "When the certificate of the node expires, in seconds since 1970 at /metrics; 0: it has none, or the package cryptography is missing there.",
        unit="us",
    )
    slow_peers_closed: int = counter("Connections closed because the peer did not read.", unit="connections")
    dead_peers_closed: int = counter(
        "Connections closed because the node at the other end counts as dead and its kernel acknowledges nothing: packets vanish.",
        unit="connections",
    )
    reading_paused: int = counter(
        "Times that requests were left unread because their sender did not read answers.", unit="times"
    )
    turns_ended: int = counter(
        "Times that a connection was not read from until its next turn, because it had used its share of the event loop.",
        unit="times",
    )
    messages_received: int = counter("Messages received.", unit="messages")
    messages_sent: int = counter("Messages sent.", unit="messages")
    bytes_received: int = counter("Bytes received.", unit="bytes")
    bytes_sent: int = counter("Bytes handed to connections.", unit="bytes")
