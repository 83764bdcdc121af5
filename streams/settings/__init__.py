"""Settings: one object, from defaults, a TOML file and the environment, each overriding the one before.

A field `bootstrap` of section `kafka` is `[kafka] bootstrap = …` in the file and QUEUECAST_KAFKA_BOOTSTRAP in the
environment. The file is the one in QUEUECAST_CONFIG, else `queuecast.toml` in the current directory, if it exists.
Methods' parameters, `[engine.parameters.METHOD]`, are set in the file only.

`sections` defines the settings, `loading` reads them.
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
