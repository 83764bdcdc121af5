"""Passwords of the local servers, and their files."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.stack import Kafka, LocalStack, Redis
from deploy.local.stack.locks import make_private, password_in, redis_users, write_private
from deploy.local.up import as_toml, settings_in, with_token
from streams.errors import UserError
from streams.settings import ServeSettings, Settings, load_settings


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def careless_umask() -> Iterator[None]:
    """With any umask, only the owner can read the files."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_local_password_is_stored_for_owner_only(tmp_path: Path) -> None:
    first = password_in(tmp_path, "redis")
    assert len(first) >= 32 and first != password_in(tmp_path, "kafka")
    assert password_in(tmp_path, "redis") == first
    assert mode(tmp_path / "redis.password") == 0o600
    (tmp_path / "redis.password").unlink()
    assert password_in(tmp_path, "redis") != first


def test_local_password_readable_by_others_is_replaced(tmp_path: Path) -> None:
    first, file = password_in(tmp_path, "redis"), tmp_path / "redis.password"
    file.chmod(0o644)
    second = password_in(tmp_path, "redis")
    assert second != first and mode(file) == 0o600
    file.rename(tmp_path / "theirs")
    file.symlink_to(tmp_path / "theirs")
    assert password_in(tmp_path, "redis") != second
    assert not file.is_symlink() and mode(file) == 0o600


def test_local_stack_directory_of_other_user_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UserError, match="belongs to another user"):
        LocalStack(tmp_path, locked=True)


def test_write_private_replaces_file_readable_by_others(tmp_path: Path) -> None:
    file = tmp_path / "queuecast.toml"
    file.write_text("old")
    file.chmod(0o666)
    write_private(file, "new")
    assert (file.read_text(), mode(file), list(tmp_path.iterdir())) == ("new", 0o600, [file])


def test_make_private_closes_directory_to_others(tmp_path: Path) -> None:
    for directory in (tmp_path / "a" / "b", tmp_path):
        make_private(directory)
        assert mode(directory) == 0o700


def test_redis_user_is_limited_to_its_keys_and_commands() -> None:
    default_user, user = redis_users("hunter2", "mine:*").splitlines()
    assert default_user == "user default off"
    assert "hunter2" not in user and " ~mine:* " in user and " -@dangerous" in user


def test_local_stack_is_open_by_default(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path)
    assert "@" not in stack.redis.url
    assert stack.kafka.properties["listeners"].startswith("PLAINTEXT://")
    assert not list(tmp_path.glob("*.password"))


def test_client_settings_file_has_passwords(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, locked=True, redis_keys="r:*")
    settings = with_token(settings_in(stack, Settings()), tmp_path)
    write_private(tmp_path / "queuecast.toml", as_toml(settings))
    found = load_settings(tmp_path / "queuecast.toml", {})
    assert (found.kafka.security, found.kafka.mechanism, found.kafka.username) == (
        "sasl_plaintext",
        "PLAIN",
        "queuecast",
    )
    assert found.kafka.password == stack.kafka_password and str(stack.redis_password) in found.redis.url
    assert found.serve.token == password_in(tmp_path, "serve")
    secrets = [found.kafka.password, stack.redis_password, found.serve.token]
    assert not [secret for secret in secrets if str(secret) in repr(found)]


def test_configured_token_is_kept(tmp_path: Path) -> None:
    own = Settings(serve=ServeSettings(token="correct horse"))
    assert with_token(own, tmp_path) is own


def test_locked_kafka_listeners_require_password(tmp_path: Path) -> None:
    properties = Kafka(tmp_path, password="hunter2").properties
    assert properties["listeners"].startswith("SASL_PLAINTEXT://")
    assert "CONTROLLER:SASL_PLAINTEXT" in properties["listener.security.protocol.map"]


def test_redis_command_has_no_password(tmp_path: Path) -> None:
    command = Redis(tmp_path, password="hunter2", keys="r:*")
    make_private(tmp_path)
    assert not [word for word in command._prepare() if "hunter2" in word]
    assert "hunter2" not in (tmp_path / "redis.conf").read_text() + (tmp_path / "users.acl").read_text()
