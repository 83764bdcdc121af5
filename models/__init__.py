"""What is known of a site and what is predicted from it.

Pure: events and numbers in, predictions out. Nothing here reads a clock, opens a file or talks to a server, so the
stream, the replay and the tests share one way through the code.
"""
