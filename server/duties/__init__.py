"""What some node sees to for the whole cluster: which node, and the process beside it that does it."""
