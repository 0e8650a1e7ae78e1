"""What production and the simulator run around a machine alike: turns, which messages wait, routes, introductions. All of it is pure."""
