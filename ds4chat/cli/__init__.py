"""The command line: the only place that joins engine and screen."""
