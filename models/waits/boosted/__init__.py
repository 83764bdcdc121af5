"""Waits by boosted trees: what a job finds at its submission against what became of jobs before it, learnt by LightGBM
in the background and in force from a fixed event on.

`live` and `recent` give the features, `features` makes a row of them; the notes of jobs hold the rows. `forest` is one
quantile on one scale, `prior` is what other sites taught, `forests` are those of one training, which start from it,
`extent` tells a state that is larger than any of theirs, `training` says when they count, `method` is the method for
one that simulates a schedule, and `alone` the method by itself.
"""
