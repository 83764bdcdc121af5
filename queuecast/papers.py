"""The papers' methods that the default does not need, at one place for the entry points of pyproject.toml."""

from models.papers.distributions import QesperaDistributions
from models.papers.downey import Downey
from models.papers.gibbons import Gibbons
from models.papers.ibl import Ibl, IblRuns
from models.papers.last_two import LastTwo
from models.papers.qbets import Qbets
from models.papers.template import Templates

__all__ = ["Downey", "Gibbons", "Ibl", "IblRuns", "LastTwo", "Qbets", "QesperaDistributions", "Templates"]
