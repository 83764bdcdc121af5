"""The search for the templates by which a site's run times are predicted best (`models.papers.template`).

The encoding of templates, the jobs that they are judged by, and the two searches. What a method needs of a template is
in `models.papers.run_template`, not here.
"""
