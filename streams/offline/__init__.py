"""Offline tools that process whole traces in this process, without servers: replay, compare, simulate, tune."""
