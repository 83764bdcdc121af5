"""Where events come from: a scheduler or file format a file, one contract (docs/howto/source.md); the publisher."""
