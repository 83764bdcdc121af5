"""Common parts of all queuecast processes: logging (`program_log`), metrics pages and serialised compilation."""
