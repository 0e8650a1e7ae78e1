"""Tools of developers: clusters of real processes on one machine, the demo, and the servers of others that these need."""
