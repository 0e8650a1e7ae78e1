"""Packages of the Debian that the tests run on, as documents."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/var/lib/dpkg/status")


def packages() -> list[tuple[str, str, dict[str, str]]]:
    """Section (as an index code), name and fields of each installed package; made-up ones where there is no Debian."""
    if not _STATUS.exists():
        return [(f"section-{number % 20}", f"package-{number}", {"Version": str(number)}) for number in range(400)]
    found = []
    for paragraph in _STATUS.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line.startswith(" "):
                fields[name] += line
            elif ":" in line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if "Package" in fields:
            section = fields.get("Section", "none").replace("/", "-")
            found.append((section, fields["Package"], fields))
    return found
