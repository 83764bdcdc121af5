"""Configuration of the Faust app."""

from pathlib import Path

from streams.broker.topics import Topics
from streams.settings import KafkaSettings, Settings
from streams.worker.app import build_app


def test_app_uses_configured_topics(tmp_path: Path) -> None:
    topics = Topics("x.")
    faust_app = build_app(Settings(kafka=KafkaSettings(prefix="x.")), str(tmp_path))
    assert faust_app.conf.id == topics.group
    assert faust_app.tables["sites"].changelog_topic.get_topic_name() == topics.state
    (agent,) = faust_app.agents.values()
    assert list(agent.channel.topics) == [topics.events]
    assert not faust_app.conf.topic_allow_declare
    assert faust_app.conf.producer_acks == -1


def test_app_port_serves_only_metrics_and_health(tmp_path: Path) -> None:
    web = build_app(Settings(), str(tmp_path)).web
    web.init_server()
    assert {route.resource.canonical for route in web.web_app.router.routes()} == {"/metrics", "/healthz", "/readyz"}
