"""The asyncio side: clock, connections, and the driver that runs a machine's effects."""
