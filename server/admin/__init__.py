"""The admin API of a node: health, debug tables and metrics, over HTTP."""
