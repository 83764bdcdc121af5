"""The demo: a grid of sites streamed through a local stack, its predictions beside what then happened."""
