"""The command line: all that knows flags, terminals and standard streams."""
