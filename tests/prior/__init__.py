"""Train the prior of the package, and measure it on sites outside its training set."""
