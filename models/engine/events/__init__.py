"""What single kinds of events do: their part of the fold, where it is more than a few lines of the engine."""
