"""The HTTP service: `web` has the paths, `service` the answers. It is stateless: estimates are cached, the rest is
queried.
"""
