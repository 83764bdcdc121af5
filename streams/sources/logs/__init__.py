"""What the sources that read text logs are built from: the files of a log in their order (`files`), their lines
(`lines`), what stands in them (`fields`), what was told of which job (`stories`), and the frame of a source (`source`).
"""
