"""What every process of queuecast's does: its own log (`program_log`), a page of metrics, compiling in turn."""
