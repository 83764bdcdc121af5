"""What operators run by hand: `doctor` checks every part of a deployment. No worker runs it."""
