"""Waits by boosted trees: the state of the site at a job's submission, trained on the waits of earlier jobs.

LightGBM trains the model in the background; it is in force from a fixed event on. `live_features` and `recent` compute
the features, and `submit_features` makes a row of them; the notes of jobs hold the rows. `forest` is one quantile on
one scale. `prior` is the model that was pre-trained on other sites, and `forests` are those of one training, which
start from it. `training_range` detects a state that is larger than any in training. `training` schedules the trainings.
`boosted` is the method for use beside a simulated schedule, and `alone` the method by itself.
"""
