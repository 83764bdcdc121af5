"""Text that people write and read: durations, sizes, TOML, and what is shown at a terminal."""
