"""A grid of simulated sites, and rules that choose a site for each job: what routing by predictions gains."""
