"""Compile kernels with numba, and store the machine code by the content of its sources.

numba finds compiled code by a file's path and content alone. So each clone and virtual environment compiles by itself,
and a kernel keeps the old code of a callee in another file. Here the place is named after the content of a kernel's
file and of all files that it takes kernels or constants from. All copies of one version on a machine share the code,
in `NUMBA_CACHE_DIR` or else in the user's cache folder, and a change compiles what depends on it.
"""

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import njit as njit
from numba.core import config
from numba.core.caching import CacheImpl, InTreeCacheLocator

from models import machine_code
from models.kernel_folder import folder as folder
from models.kernel_folder import mark_used

ROOT = Path(__file__).parent
_PACKAGE = __name__.rpartition(".")[0]
_IMPORT = re.compile(rf"^from {re.escape(_PACKAGE)}(\.[\w.]+)? import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
_KERNEL = "\n@njit"
_mark_used = cache(mark_used)
_X86_64_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_LAYOUT = "callees as intermediate code"  # of the stored kernels: changes with `machine_code`


@cache
def _source(file: Path) -> str:
    return file.read_text()


@cache
def _module(dotted: str) -> Path | None:
    place = ROOT.joinpath(*dotted.split(".")) if dotted else ROOT
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


@cache
def _imported(file: Path) -> frozenset[Path]:
    """Return the files from which this one imports kernels or constants."""
    found: set[Path] = set()
    for dotted, several, one in _IMPORT.findall(_source(file)):
        package, names = dotted.lstrip("."), several or one
        for name in re.findall(r"\w+", names):
            submodule = _module(f"{package}.{name}".lstrip("."))
            origin = submodule or _module(package)
            if origin and (submodule or _CONSTANT.fullmatch(name) or _compiles(origin)):
                found.add(origin)
    return frozenset(found)


@cache
def _compiles(file: Path) -> bool:
    return _KERNEL in _source(file) or file.name == "__init__.py"


@cache
def version(file: Path) -> str:
    """Return a digest of everything in this package that determines the kernels of a file, and of the kind of CPU.

    Args:
        file: A source file of this package.
    """
    seen, pending = {file}, [file]
    while pending:
        new = _imported(pending.pop()) - seen
        seen |= new
        pending += filter(_compiles, new)
    sources = (f"{one.relative_to(ROOT)}\n{_source(one)}" for one in sorted(seen))
    return hashlib.sha256("\n".join([_PACKAGE, _LAYOUT, str(config.CPU_NAME), *sources]).encode()).hexdigest()[:16]


def _place(file: Path) -> Path:
    return folder() / f"{file.stem}-{version(file)}"


def is_compiled(file: str) -> bool:
    """Return True if the cache has a kernel of this source file."""
    return any(_place(Path(file)).glob("*.nbi"))


class KernelLocator(InTreeCacheLocator):  # type: ignore[misc]  # numba is untyped
    """Locate the compiled kernels of this package; functions of other packages use the other locators."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(_place(Path(py_file)))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "KernelLocator | None":
        """Return the locator of a function; none if it is not of this package, or the folder is not writable."""
        if not Path(py_file).is_relative_to(ROOT):
            return None
        found: KernelLocator | None = super().from_function(py_func, py_file)
        if found is not None:
            _mark_used(Path(found.get_cache_path()))
        return found


def _others() -> str:
    return config.CACHE_LOCATOR_CLASSES or ",".join(one.__name__ for one in CacheImpl._locator_classes)


def cpu_name() -> str:
    """Return the kind of CPU that kernels are compiled for: one that most servers have, so that they can be shared.

    That of x86-64-v3 (2013 and later) has instructions for four numbers at once, with which long loops need a third of
    the time. Kernels for another CPU are compiled again.
    """
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot detect them on this platform
        return "generic"
    return "x86-64-v3" if all(features.get(name) for name in _X86_64_V3) else "generic"


machine_code.defer()
if config.CPU_NAME is None and config.CPU_FEATURES is None:  # neither is configured
    os.environ |= {"NUMBA_CPU_NAME": cpu_name(), "NUMBA_CPU_FEATURES": ""}
    config.reload_config()
config.CACHE_LOCATOR_CLASSES = f"{__name__}.{KernelLocator.__name__},{_others()}"
