"""The console: a node's pages in the browser. The node serves files and passes answers on; a process of its own (the worker) asks the cluster."""
