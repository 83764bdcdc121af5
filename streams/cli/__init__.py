"""The command line: one file a group of commands, which read options, call the other rooms and print.

What a command does belongs in the room of its subject, not here.
"""
