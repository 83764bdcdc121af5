"""Settings: one object, from defaults, a TOML file and the environment, each over the one before.

A field `bootstrap` of section `kafka` is `[kafka] bootstrap = …` in the file and QUEUECAST_KAFKA_BOOTSTRAP in the
environment. The file is the one QUEUECAST_CONFIG names, else `queuecast.toml` in this directory, where there is one.
Methods' parameters, `[engine.parameters.METHOD]`, are set in the file only.

`sections` has what can be set, `loading` reads it.
"""

from streams.settings.loading import PREFIX, load_settings, settings_file
from streams.settings.sections import (
    SECTIONS,
    EstimateSettings,
    KafkaSettings,
    NotifySettings,
    QuestionSettings,
    RedisSettings,
    ServeSettings,
    Settings,
    SitesSettings,
    TopicSettings,
    WorkerSettings,
)
