"""The search for the templates by which a site's run times are predicted best (`models.runtimes.template`)."""
