"""What a log has and lacks, and how good predictions on it were: in words, at the terminal and as a page."""
