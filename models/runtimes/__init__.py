"""The methods that predict run times: one method a file, named in `models.method_registry`.

What several methods need of a site belongs in `models.site`, not here.
"""
