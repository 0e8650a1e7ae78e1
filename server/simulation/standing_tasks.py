"""Where the tasks of an application stand, for the report of one that does not end."""

from __future__ import annotations

import asyncio
import gc
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Final

from client.reader import Reader
from logdevice_py.core.some_names import name_some
from logdevice_py.programs import PACKAGES

_ROOT: Final = Path(__file__).parents[2]
_STANDARD: Final = Path(sysconfig.get_path("stdlib"))
_TASKS_SHOWN: Final = 20
"""Groups of tasks that stand at the same place."""
_NAMES_SHOWN: Final = 3
"""Of such a group."""


def where_tasks_stand(tasks: set[asyncio.Task[Any]]) -> list[str]:
    """For people: the application's frames of each of these tasks, and what the last one waits for. Tasks without such frames are not its own."""
    groups: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name())):
        if (place := _place(task)) is not None:
            groups.setdefault(place, []).append(task.get_name())
    lines: list[str] = []
    for place, names in list(groups.items())[:_TASKS_SHOWN]:
        lines += [f"{name_some(names, _NAMES_SHOWN)}:", *place.splitlines()]
    if len(groups) > _TASKS_SHOWN:
        lines.append(f"and tasks at {len(groups) - _TASKS_SHOWN} other places")
    return lines


def _place(task: asyncio.Task[Any]) -> str | None:
    """Where one task stands; None: nowhere in the application."""
    frames = list(_frames(task.get_coro()))
    own = [index for index, frame in enumerate(frames) if _is_the_users(frame)]
    if not own:
        return None
    shown = traceback.StackSummary.extract((frames[index], frames[index].f_lineno) for index in own)
    text = "".join(shown.format())
    below = frames[own[-1] + 1 :]
    if below:
        text += f"    waits in {_name(below[0])}{_reason(below)}\n"
    return text


def _name(frame: FrameType) -> str:
    """The function, and of which class it is there: the one that the user made, not the one that it inherits from."""
    code = frame.f_code
    owner = frame.f_locals.get("self")
    return code.co_qualname if owner is None else f"{type(owner).__name__}.{code.co_name}"


def _reason(frames: list[FrameType]) -> str:
    """What a reader of ours waits for, when one does."""
    for frame in frames:
        own = frame.f_locals.get("self")
        if isinstance(own, Reader):
            return f", for {own.waiting_for()}"
    return ""


def _frames(awaited: Any) -> Iterator[FrameType]:
    """Of a coroutine that is suspended, and of what it awaits, the outermost first."""
    while awaited is not None:
        match awaited:
            case CoroutineType():
                frame, below = awaited.cr_frame, awaited.cr_await
            case GeneratorType():
                frame, below = awaited.gi_frame, awaited.gi_yieldfrom
            case AsyncGeneratorType():
                frame, below = awaited.ag_frame, awaited.ag_await
            case _:  # what ``async for`` and ``__await__`` put around a generator or coroutine, and has no name in Python; or a future
                kinds = (CoroutineType, GeneratorType, AsyncGeneratorType)
                frame = None
                below = next((each for each in gc.get_referents(awaited) if isinstance(each, kinds)), None)
                if isinstance(awaited, asyncio.Future) or type(awaited).__name__ == "FutureIter":
                    return
        if frame is not None:
            yield frame
        awaited = below


def _is_the_users(frame: FrameType) -> bool:
    """Neither ours nor Python's own."""
    file = Path(frame.f_code.co_filename)
    if file.is_relative_to(_ROOT) and file.relative_to(_ROOT).parts[0] in PACKAGES:
        return False
    return not file.is_relative_to(_STANDARD) or "site-packages" in file.parts
