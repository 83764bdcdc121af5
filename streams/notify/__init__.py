"""Notices: what people are told of their jobs while these queue, on a topic and by a webhook."""
