"""Give a mutant's code to the functions of a module that is already imported.

So the tests of many mutants need to be collected only once. It cannot be done for what an import
does: the body of a module or of a class, a default of a parameter.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import CodeType, FunctionType


class NotInAFunction(Exception):
    """The mutant changes what an import does, so the module has to be imported anew."""


def functions_there_are() -> list[FunctionType]:
    # What is frozen is not found.
    gc.unfreeze()
    return [one for one in gc.get_objects() if type(one) is FunctionType]


def replace_functions(
    there: Sequence[FunctionType], file: str, original: str, mutated: str
) -> None:
    """Every one of these functions that differs gets the code of the mutant.

    Raises:
        NotInAFunction: nothing was changed.
    """
    before, after = (
        compile(source, file, "exec", dont_inherit=True) for source in (original, mutated)
    )
    changed = dict(_changed(before, after))
    found = [one for one in there if one.__code__.co_filename == file and one.__code__ in changed]
    if any(len(one.__closure__ or ()) != len(changed[one.__code__].co_freevars) for one in found):
        raise NotInAFunction
    outermost = {one for one in _functions_of(before) if one in changed}
    if not outermost or not outermost <= {one.__code__ for one in found}:
        raise NotInAFunction
    for one in found:
        one.__code__ = changed[one.__code__]


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions that differ, those within others too: one of them may be alive by itself."""
    if not _is_function(before) and _own(before) != _own(after):
        raise NotInAFunction
    for one, other in zip_longest(_parts(before), _parts(after)):
        if one is None or other is None:
            raise NotInAFunction
        if _is_function(one) and _whole(one) != _whole(other):
            yield one, other
        yield from _changed(one, other)


def _functions_of(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module's or a class's body, without those within them."""
    for one in _parts(code):
        if _is_function(one):
            yield one
        else:
            yield from _functions_of(one)


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _parts(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> object:
    """What the code does itself, wherever its lines stand."""
    constants = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_name, code.co_code, constants, code.co_names, code.co_varnames


def _whole(code: CodeType) -> object:
    return _own(code), [_whole(one) for one in _parts(code)]
