"""Generate machine code only for kernels that Python calls.

numba optimizes the code of each callee fully and generates machine code for it. Each caller then does both again with a
copy of the callee. Within the kernels of this package, a callee keeps its intermediate code only, until Python calls it
or another part of numba needs its address. numba's cache stores either kind.

This replaces methods of numba's internal classes, so only in versions that the tests cover. Other versions compile as
usual, which takes longer.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import dispatcher
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.sigutils import normalize_signature

from models.kernel_locks import compiling_once

ROOT = Path(__file__).parent
TESTED = ("0.68.",)


class _Compilation(threading.local):
    """Place of this thread in a compilation.

    Attributes:
        ours: Whether it compiles a kernel of this package.
        callee: Whether it compiles a callee of that kernel.
    """

    ours = False
    callee = False


_now = _Compilation()


class Pending:
    """Entry point of a compiled callee without machine code."""

    def __init__(self, *function: Any) -> None:
        self.function = function


def _replaces(owner: type, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a method by a function that receives the original one first."""
    original = getattr(owner, name)

    def replace(function: Callable[..., Any]) -> None:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            return function(original, self, *args, **options)

        setattr(owner, name, method)

    return replace


def defer() -> None:
    """Replace the methods once, if this version of numba was tested."""
    if not numba.__version__.startswith(TESTED) or hasattr(JITCodeLibrary, "_pending"):
        return
    JITCodeLibrary._pending = JITCodeLibrary._stored_pending = False
    _keep_intermediate_code()
    _compile_for_callers()


def _keep_intermediate_code() -> None:
    """Let code libraries wait for their optimization and their machine code."""

    @_replaces(JITCodeLibrary, "_optimize_final_module")
    def optimize(original: Any, library: Any) -> None:
        if not _now.ours:
            original(library)
            return
        passes, builder = library._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(library._final_module, builder)
        library._pending = True

    @_replaces(JITCodeLibrary, "_finalize_final_module")
    def finalize(original: Any, library: Any) -> None:
        if _now.ours and not library._pending and not getattr(library, "_compiled_object", None):
            library._pending = library._stored_pending = True
        if library._pending:
            library._finalize_dynamic_globals()
            library._finalized = True
        else:
            original(library)

    @_replaces(JITCodeLibrary, "get_pointer_to_function")
    def pointer(original: Any, library: Any, name: str) -> int:
        library._ensure_finalized()
        _emit(library)
        found: int = original(library, name)
        return found

    @_replaces(JITCPUCodegen, "set_env")
    def environment(original: Any, codegen: Any, name: str, value: Any) -> None:
        if codegen._engine.get_global_value_address(name):  # else no machine code refers to it
            original(codegen, name, value)

    @_replaces(JITCodeLibrary, "serialize_using_object_code")
    def serialize(original: Any, library: Any) -> Any:
        return library.serialize_using_bitcode() if library._pending else original(library)


def _emit(library: Any) -> None:
    """Optimize a library and generate its machine code, if that waits."""
    if not library._pending:
        return
    ours, _now.ours = _now.ours, False
    try:
        library._pending = False
        library._dynamic_globals.clear()
        library._optimize_final_module()
        library.enable_object_caching()
        library._finalize_final_module()
    finally:
        _now.ours = ours


def _compile_for_callers() -> None:
    """Let dispatchers compile callees without an entry point for Python, and add it at the first call."""

    @_replaces(CPUContext, "get_executable")
    def executable(original: Any, context: Any, library: Any, *function: Any) -> Any:
        library._ensure_finalized()
        if _now.callee and library._pending:
            return Pending(library, *function)
        return original(context, library, *function)

    @_replaces(dispatcher._DispatcherBase, "add_overload")
    def add(original: Any, kernel: Any, compiled: Any) -> None:
        if isinstance(compiled.entry_point, Pending):
            kernel.overloads[tuple(compiled.signature.args)] = compiled
        else:
            original(kernel, compiled)

    @_replaces(dispatcher._DispatcherBase, "get_call_template")
    def template(original: Any, kernel: Any, *args: Any) -> Any:
        callee, _now.callee = _now.callee, _now.ours
        try:
            return original(kernel, *args)
        finally:
            _now.callee = callee

    @_replaces(dispatcher.Dispatcher, "compile")
    def compile_one(original: Any, kernel: Any, signature: Any) -> Any:
        if not _is_ours(kernel):
            return compile_now(original, kernel, signature)
        with global_compiler_lock, compiling_once(kernel):
            return compile_now(original, kernel, signature)

    def compile_now(original: Any, kernel: Any, signature: Any) -> Any:
        if _now.callee:
            return original(kernel, signature)
        ours, _now.ours = _now.ours, _is_ours(kernel)
        try:
            original(kernel, signature)
        finally:
            _now.ours = ours
        return _called(kernel, signature)


def _is_ours(kernel: Any) -> bool:
    return Path(kernel.py_func.__code__.co_filename).is_relative_to(ROOT)


@global_compiler_lock
def _called(kernel: Any, signature: Any) -> Any:
    """Return the entry point of a kernel that Python calls now, and store its machine code if the cache has none."""
    args, _ = normalize_signature(signature)
    compiled = kernel.overloads[tuple(args)]
    context = compiled.target_context
    if isinstance(compiled.entry_point, Pending):
        executable = context.get_executable(*compiled.entry_point.function)
        context.insert_user_function(executable, compiled.fndesc, [compiled.library])
        compiled = compiled._replace(entry_point=executable)
        kernel.add_overload(compiled)
        kernel._cache.save_overload(signature, compiled)
    elif compiled.library._stored_pending:
        compiled.library._stored_pending = False
        kernel._cache.save_overload(signature, compiled)
    for one in compiled._find_referenced_environments():  # those of its callees too, which raise errors with them
        compiled.codegen.set_env(one.env_name, one)
    return compiled.entry_point
