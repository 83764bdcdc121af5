"""Methods of papers that the default does not need, and the searches for their parameters.

They come to `models.method_registry` by the entry points in `pyproject.toml`, as the methods of other packages do. The
searches (`models.papers.search`) are offline: no worker runs them and no method imports them.
"""
