"""Text for people: durations, sizes, TOML, and terminal output."""
