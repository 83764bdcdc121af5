"""The methods that predict waits: one method a file, named in `models.registry`.

What several methods need of a site belongs in `models.site`, not here.
"""
