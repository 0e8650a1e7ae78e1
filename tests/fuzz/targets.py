"""All fuzz targets, by name."""

from __future__ import annotations

from tests.fuzz.checking import Target
from tests.fuzz.decoders import DECODERS
from tests.fuzz.services import SERVICES
from tests.fuzz.states import STATES

TARGETS: dict[str, Target] = {target.name: target for target in (*DECODERS, *SERVICES, *STATES)}
