"""Who is in the cluster and who is alive: gossip between nodes, and the view of it that other machines read."""
