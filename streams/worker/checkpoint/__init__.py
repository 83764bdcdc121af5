"""Persistence of sites: what is stored where, in which order, and how it is restored."""
