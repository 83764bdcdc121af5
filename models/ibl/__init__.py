"""Instance-based learning."""
from models.ibl.method import Ibl, IblRuns, Parameters
__all__ = ["Ibl", "IblRuns", "Parameters"]
