"""A Redis that loses the last second of what it had acknowledged, as one with `appendfsync everysec` may."""

from pathlib import Path

from deploy.local.stack import Redis


def forgetful_redis(directory: Path) -> Redis:
    """The server, not started; its append-only file is never rewritten."""
    return Redis(directory, config={"appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"})


def written(server: Redis) -> int:
    """How much it has written so far, in bytes of its log."""
    return _log(server).stat().st_size


def kill_and_lose(server: Redis, kept: int) -> int:
    """Kill it, and lose all but the first `kept` bytes of its log; returns how many are lost."""
    server.kill()
    lost = written(server) - kept
    with _log(server).open("r+b") as file:
        file.truncate(kept)
    return lost


def _log(server: Redis) -> Path:
    return server.directory / "appendonly.aof"
