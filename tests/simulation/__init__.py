"""Routing of jobs in a grid of simulated sites, to measure the gain of predictions."""
