"""API for custom prediction methods: the base classes, and the types of their arguments."""

from models.method import Memory, RunMethod, SiteContext, WaitMethod
from models.site.job import Estimate, Job

__all__ = ["Estimate", "Job", "Memory", "RunMethod", "SiteContext", "WaitMethod"]
