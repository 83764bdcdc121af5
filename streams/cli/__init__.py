"""The command line: one file a group of commands, which read options, call the other rooms and print; no more."""
