"""Report on a log and on the accuracy of predictions on it, for the terminal and as a page."""
