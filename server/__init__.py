"""The process of a node, and clusters of them on one machine."""
