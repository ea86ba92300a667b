"""The command line: signatures, options, input, output and bars; all that knows a terminal, a flag or a stream."""
