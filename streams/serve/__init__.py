"""The HTTP service: `web` has the paths, `service` the answers. No state: estimates are read, all else is asked."""
