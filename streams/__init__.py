"""Event processing: the Faust app, its topics and stores, the sources, the metrics and the command line."""
