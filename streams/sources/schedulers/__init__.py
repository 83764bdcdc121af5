"""Sources by scheduler: one module each, beside it what reads its requests."""
