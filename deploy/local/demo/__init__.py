"""Demo: a grid of sites streamed through a local stack, with its predictions and the actual waits."""
