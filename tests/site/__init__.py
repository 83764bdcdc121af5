"""The documentation site: what mkdocs adds to the pages in `docs` when `make docs` builds it, see `mkdocs.yml`.

READMEs become pages where they stand; the reference is made from the code, so it is never behind it.
"""
