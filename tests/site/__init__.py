"""The documentation site: pages that mkdocs adds to `docs` when `make docs` builds it, see `mkdocs.yml`.

READMEs become pages; the reference is generated from the code, so it is always up to date.
"""
