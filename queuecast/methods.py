"""What a method of your own needs: the base classes, and what they are given."""

from models.method import Memory, RunMethod, SiteContext, WaitMethod
from models.site.job import Estimate, Job

__all__ = ["Estimate", "Job", "Memory", "RunMethod", "SiteContext", "WaitMethod"]
