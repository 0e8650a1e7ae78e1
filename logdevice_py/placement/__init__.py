"""Where things go: failure domains, nodesets, copysets, and which node sequences a log. Everything here is pure."""
