"""Bytes to messages and back.

A frame is ``u32 length (of everything behind it), u16 fields length, u8 type, u8 flags, u32 crc32c (of length to flags and of the fields),
fields, payload``, big-endian. The payload is not covered: it carries its own checksum end to end.

A length over the limit is refused before anything is allocated for it. Any violation raises `ProtocolError`: the connection is closed and
nobody else notices.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgpack
from google_crc32c import extend, value
from msgpack import unpackb

from logdevice_py.core.entry import BODY_SIZE_MAX
from logdevice_py.core.status import ProtocolError
from logdevice_py.core.unpacking import UNCHECKED_SIZE, check_complete
from logdevice_py.protocol.declare import CODEC_OF, CODECS, FIELDS_SIZE_MAX

_HEAD: Final = struct.Struct(">IHBB")
_CRC: Final = struct.Struct(">I")
_FRAME_HEAD: Final = struct.Struct(">IHBBI")
HEAD_SIZE: Final = _FRAME_HEAD.size
_CRC_AT: Final = _HEAD.size
TYPE_AT: Final = 6
"""Where in a frame the number of its message is."""
_LENGTH_MIN: Final = HEAD_SIZE - 4
FRAME_SIZE_MAX: Final = BODY_SIZE_MAX + (1 << 20)
"""Of any frame, length field included."""
FRAME_SIZE_MAX_BEFORE_HELLO: Final = 4096
"""Of a frame from a peer that has not introduced itself."""
_JOINED_PAYLOAD_MAX: Final = 4096
"""One piece costs less than two up to here."""
_BUFFER_SIZE: Final = 1 << 18
_BEGUN_SIZE: Final = 4096
"""Bytes that a begun frame gets at first from a peer that has not sent a larger one."""
_FAMILIAR_SIZE_MAX: Final = 1 << 20
"""However large the frames are that a peer has sent."""
_SPARE_SIZE_MIN: Final = 1 << 16
_SPARE_SIZE_MAX: Final = 1 << 21
_SPARES_MAX: Final = 4
"""Buffers of between these sizes are kept for further frames: 8 MiB at most."""
_SMALL_LENGTH_MAX: Final = _LENGTH_MIN + FIELDS_SIZE_MAX
"""Of what lies behind the length field of a message without payload."""


class FrameTooLargeError(Exception):
    """A message that no frame can hold. Nothing was sent: who made the message has left out a bound."""


def encode_frame(message: Any) -> list[bytes]:
    """The frame of a message as one or two pieces; a payload that is not small is passed on, not copied.

    Raises:
        FrameTooLargeError: its fields take more than 64 KiB.
    """
    codec = CODEC_OF[type(message)]
    fields = codec.pack(message)
    size = len(fields)
    if size > FIELDS_SIZE_MAX:
        raise FrameTooLargeError(f"{codec.name}: {size} bytes of fields, a frame holds {FIELDS_SIZE_MAX}")
    if codec.payload is None:
        head = _HEAD.pack(_LENGTH_MIN + size, size, codec.number, 0)
        return [head + _CRC.pack(extend(value(head), fields)) + fields]
    payload = getattr(message, codec.payload)
    length = len(payload)
    head = _HEAD.pack(_LENGTH_MIN + size + length, size, codec.number, 0)
    crc = _CRC.pack(extend(value(head), fields))
    if length <= _JOINED_PAYLOAD_MAX:
        return [b"".join((head, crc, fields, payload))]
    return [head + crc + fields, payload]


def framed(number: int, fields: bytes, payload_size: int) -> bytes:
    """Head and packed fields of a frame; so many bytes of payload follow."""
    head = _HEAD.pack(_LENGTH_MIN + len(fields) + payload_size, len(fields), number, 0)
    return head + _CRC.pack(extend(value(head), fields)) + fields


def decode_frame(frame: bytes) -> Any:
    """The message of one complete frame."""
    reader = FrameReader()
    messages = reader.feed(frame)
    if len(messages) != 1 or reader.pending:
        raise ProtocolError("not exactly one frame")
    return messages[0]


class InputMemory:
    """What the frames that are begun on all connections of a process take, bounded together.

    When they need more, the frame that was begun longest ago makes way: honest frames are begun and complete, those that nobody means to complete stay.
    A few large buffers are kept for the next large frames, of whatever connection: memory that is new each time costs more than what is done in it.
    """

    __slots__ = ("_holders", "_spare", "limit", "used")

    def __init__(self, limit: int) -> None:
        """
        Args:
            limit: bytes.
        """
        self.limit = limit
        self.used = 0
        self._holders: dict[FrameReader, int] = {}
        """In the order in which their frames were begun."""
        self._spare: list[bytearray] = []

    @property
    def spare_bytes(self) -> int:
        """What is kept for further frames."""
        return sum(map(len, self._spare))

    def buffer(self, size: int) -> bytearray:
        """At least so many bytes, of any content."""
        if size >= _SPARE_SIZE_MIN:
            for index, spare in enumerate(self._spare):
                if len(spare) >= size:
                    return self._spare.pop(index)
            size = 1 << (size - 1).bit_length() if size <= _SPARE_SIZE_MAX else size
        return bytearray(size)

    def spare(self, buffer: bytearray) -> None:
        """A buffer that nobody uses any more."""
        if _SPARE_SIZE_MIN <= len(buffer) <= _SPARE_SIZE_MAX:
            self._spare.append(buffer)
            if len(self._spare) > _SPARES_MAX:
                del self._spare[0]

    def take(self, reader: FrameReader, size: int) -> None:
        """A reader holds so many bytes from here on. Others, or itself, may be told to make way."""
        self.used += size - self._holders.get(reader, 0)
        self._holders[reader] = size
        while self.used > self.limit:
            oldest = next((each for each in self._holders if each.makes_way is not None), None)
            if oldest is None:
                return
            self.give_back(oldest)
            assert oldest.makes_way is not None
            oldest.makes_way()

    def give_back(self, reader: FrameReader) -> None:
        """A reader holds nothing any more."""
        self.used -= self._holders.pop(reader, 0)


class FrameReader:
    """Cuts a byte stream into messages.

    Use: fill a part of `get_buffer()`, then call `read` or `received` with the number of bytes filled; or call `feed`. Bytes come into a buffer that many
    readers share. Only a frame that is begun and not complete, and frames for which there was no time yet, have memory of their own. A begun frame
    gets at once as much as the largest frame that was completed before, beyond that it grows with what arrives.

    How much is read at a time follows from how much is handled at a time: what is left unread waits in the socket, and its sender with it.
    """

    __slots__ = (
        "_at_once",
        "_begin",
        "_largest",
        "_memory",
        "_own",
        "_room",
        "_shared",
        "_sound_crc",
        "_write",
        "completed",
        "frame_size_max",
        "large_types",
        "makes_way",
        "received_bytes",
        "stopped",
    )

    def __init__(
        self,
        frame_size_max: int = FRAME_SIZE_MAX,
        *,
        shared: bytearray | None = None,
        memory: InputMemory | None = None,
    ) -> None:
        """
        Args:
            shared: where bytes come that continue no frame; whoever fills it calls `received` before anybody else fills it. None: one of its own.
            memory: where begun frames are accounted for.
        """
        self.frame_size_max = frame_size_max
        self.large_types: frozenset[int] | None = None
        """Numbers of the messages that may have a payload of any size; None: all that are declared with one."""
        self.makes_way: Callable[[], None] | None = None
        """Ends the connection when begun frames take too much memory; None: this one's may."""
        self.received_bytes = 0
        self.completed = 0
        """Messages so far."""
        self.stopped = False
        """Whoever took the last message wanted no more: `read` is called again before further bytes come."""
        self._shared = bytearray(_BUFFER_SIZE) if shared is None else shared
        self._memory = memory
        self._own: bytearray | None = None
        self._begin = 0
        """Where in its own buffer the first byte is that is not read yet."""
        self._room = 0
        """Bytes of it that may be used."""
        self._at_once = min(frame_size_max, len(self._shared))
        """Bytes that are read at a time at most where no frame is begun: no more than a frame from newcomers, whose first decides whether there is a second."""
        self._largest = _BEGUN_SIZE
        """What a begun frame gets at first, if it declares as many bytes: peers that send large frames send more of them."""
        self._write = 0
        """Where in its own buffer the next byte comes."""
        self._sound_crc = -1
        """Checksum of the frame begun, when its head and fields match it and only its payload is not complete."""

    @property
    def pending(self) -> int:
        """Bytes received that are no complete frame yet."""
        return self._write - self._begin

    def feed(self, data: bytes) -> list[Any]:
        """The messages completed by these bytes."""
        messages: list[Any] = []
        at, count = 0, len(data)
        while at < count:
            view = self.get_buffer()
            size = min(len(view), count - at)
            view[:size] = data[at : at + size]
            view.release()
            at += size
            messages += self.received(size)
        return messages

    def get_buffer(self, _hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty."""
        assert not self.stopped, "frames are left that nobody took"
        if self._own is None:
            return memoryview(self._shared)[: self._at_once]
        return memoryview(self._own)[self._write : self._room]

    def received(self, count: int) -> list[Any]:
        """The messages completed by `count` further bytes; see `read`."""
        messages: list[Any] = []
        self.read(count, messages.append)
        return messages

    def read(self, count: int, take: Callable[[Any], bool | None]) -> None:
        """Hand over the messages completed by `count` further bytes, and those that were left.

        Args:
            take: gets one message after the other; when it returns True, it gets no more of them in this call.

        Raises:
            ProtocolError: the bytes are no messages. Nothing can be read from here on.
        """
        self.received_bytes += count
        buffer = self._shared if self._own is None else self._own
        begin = read = self._begin
        write = self._write + count
        left, self.stopped = self.stopped, False
        largest = self.frame_size_max - 4
        view = memoryview(buffer)
        try:
            while write - read >= HEAD_SIZE:
                length, fields_length, type_, flags, crc = _FRAME_HEAD.unpack_from(view, read)
                if not _LENGTH_MIN <= length <= largest:
                    self._refuse(length)
                if length > _SMALL_LENGTH_MAX:
                    self._check_large(length, type_)
                end = read + 4 + length
                at = read + HEAD_SIZE + fields_length
                if at > end:
                    raise ProtocolError(f"{fields_length} bytes of fields do not fit a frame of {length + 4}")
                if write < end and (write < at or crc == self._sound_crc):
                    break
                head = bytes(view[read:at])
                fields = head[HEAD_SIZE:]
                if crc != extend(value(head[:_CRC_AT]), fields):
                    raise ProtocolError("the frame does not match its checksum")
                if write < end:
                    # a damaged length must not let the connection wait for bytes that nobody sent
                    self._sound_crc = crc
                    break
                self._sound_crc = -1
                message = _decode(type_, flags, fields, bytes(view[at:end]) if at < end else b"")
                read = end
                self.completed += 1
                if take(message) and read < write:
                    self.stopped = True
                    break
            else:
                if write - read >= 4:
                    length = int.from_bytes(view[read : read + 4], "big")
                    if not _LENGTH_MIN <= length <= largest:
                        self._refuse(length)
        finally:
            view.release()
        if self.stopped:
            self._at_once = max(_BEGUN_SIZE, min(self._at_once, read - begin))
            self._leave(buffer, read, write)
        else:
            if count == self._at_once:
                self._at_once = min(2 * count, len(self._shared))
            self._keep(buffer, read, write, left=left)

    def close(self) -> None:
        """Nothing more is read: give back what is kept."""
        own, self._own = self._own, None
        self._begin = self._write = 0
        if self._memory is not None:
            self._memory.give_back(self)
            if own is not None:
                self._memory.spare(own)

    def _leave(self, buffer: bytearray, read: int, write: int) -> None:
        """Keep frames for which there is no time now."""
        if self._own is not None:
            self._begin, self._write = read, write
            return
        self._begin, self._write = 0, write - read
        self._own = own = bytearray(self._write) if self._memory is None else self._memory.buffer(self._write)
        memoryview(own)[: self._write] = memoryview(buffer)[read:write]
        self._room = self._write
        if self._memory is not None:
            self._memory.take(self, len(own))

    def _keep(self, buffer: bytearray, read: int, write: int, *, left: bool) -> None:
        """Keep what is begun in a buffer of its own, with room for more of it. left: the buffer held whole frames."""
        begun = self._write = write - read
        self._begin = 0
        previous, memory = self._own, self._memory
        if previous is not None:
            if read == 0 and write < self._room:
                return
            if read and not left:
                self._largest = max(self._largest, min(read, _FAMILIAR_SIZE_MAX))
        if not begun:
            if previous is not None:
                self.close()
            return
        # As much as the frame needs, so that what follows comes into the shared buffer again, but at most as much again as is there:
        # four bytes that declare a frame cost no more than its head, until the peer has sent as much before.
        size = int.from_bytes(buffer[read : read + 4], "big") + 4 if begun >= 4 else HEAD_SIZE
        self._room = min(size, max(2 * begun, self._largest))
        self._own = own = bytearray(self._room) if memory is None else memory.buffer(self._room)
        memoryview(own)[:begun] = memoryview(buffer)[read:write]  # a slice of `own` itself would copy twice
        if memory is not None:
            if read and previous is not None:
                memory.give_back(self)  # another frame, begun later
            memory.take(self, len(own))
            if previous is not None:
                memory.spare(previous)

    def _check_large(self, length: int, type_: int) -> None:
        codec = CODECS.get(type_)
        allowed = self.large_types
        if codec is None or codec.payload is None or (allowed is not None and type_ not in allowed):
            name = f"message type {type_}" if codec is None else codec.name
            raise ProtocolError(f"a frame of {length + 4} bytes; {name} may have {_SMALL_LENGTH_MAX + 4} here")

    def _refuse(self, length: int) -> NoReturn:
        raise ProtocolError(f"a frame of {length + 4} bytes; {HEAD_SIZE} to {self.frame_size_max} are allowed")


def _decode(type_: int, flags: int, fields: bytes, payload: bytes) -> Any:
    if flags:
        raise ProtocolError(f"frame flags {flags:#x} are not known")
    codec = CODECS.get(type_)
    if codec is None:
        raise ProtocolError(f"message type {type_} is not known")
    size = len(fields)
    if size > codec.fields_size_max:
        raise ProtocolError(f"{codec.name}: {size} bytes of fields, at most {codec.fields_size_max} are allowed")
    try:
        if size > UNCHECKED_SIZE:
            check_complete(fields)
        array = unpackb(fields, max_array_len=codec.array_len_max, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ProtocolError(f"{codec.name}: fields cannot be unpacked: {error}") from None
    if type(array) is not list:
        raise ProtocolError(f"{codec.name}: fields are no array")
    return codec.unpack(array, payload)
