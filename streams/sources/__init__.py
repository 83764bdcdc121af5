"""Event sources: one module per scheduler or file format, one contract (docs/howto/source.md), and the publisher."""
