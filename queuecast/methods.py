"""API for custom prediction methods: the base classes, and the types of their arguments."""

from models.method import Memory, RunMethod, SiteContext, WaitMethod
from models.site.job import Estimate, Job, RunEstimate
from models.site.runs import RunHistory

__all__ = ["Estimate", "Job", "Memory", "RunEstimate", "RunHistory", "RunMethod", "SiteContext", "WaitMethod"]
