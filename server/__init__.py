"""The process of a node, simulated clusters of them, and tools of developers."""
