"""Looking into a log without reading it: where a time or a key is, how it begins and ends, how large it is."""
