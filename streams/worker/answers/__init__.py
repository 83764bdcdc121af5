"""Grid estimates and answers to questions, which a worker emits in addition to predictions."""
