"""One site as a fold: an event goes in, predictions and outcomes come out; what is asked, scored and saved.

No method of prediction lives here (see `models.waits`, `models.runtimes`), and nothing that reads a clock or a file.
"""
