"""Sources that read text logs: the files of a log in their order (`files`), their lines (`lines`), what was told of
which job (`stories`), the frame of such a source (`source`), and one module a scheduler.
"""
