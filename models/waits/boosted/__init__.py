"""Waits by boosted trees: what a job finds at its submission against what became of jobs before it, learnt by LightGBM
in the background and in force from a fixed event on."""
