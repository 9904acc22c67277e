"""The mistakes that are made: where each fits into a source, and what the source then says. Pure.

Not touched, since no decision is in them: annotations, decorators, docstrings, imports, assertions,
parts of f-strings, log lines, the points where a test may kill the process, and the named numbers
of a module or a class: those are chosen, and a test of one would only repeat it.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
NAMED = (ast.Assign, ast.AnnAssign)
# Names whose calls say or measure something and decide nothing.
REMARKS = {"logger", "failpoint", "warnings"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """`start` and `end` are byte offsets; `module` is a dotted name within the package.

    `statement` is the line on which the statement begins that it is a part of, `coroutine` the
    first and the last line of the coroutine's body around it, if there is one.
    """

    module: str
    operator: str
    statement: int
    line: int
    last_line: int
    start: int
    end: int
    replacement: str
    coroutine: tuple[int, int] | None

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.replacement.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        name = self.module.replace(".", "/") + ".py"
        changed = difflib.unified_diff(
            source.splitlines(), self.applied(source).splitlines(), name, name, n=2, lineterm=""
        )
        return "\n".join(changed)

    def place(self, source: str) -> str:
        """The line it changes, without its indentation."""
        return source.splitlines()[self.line - 1].strip()


Change = tuple[str, ast.expr | ast.stmt, str]
"""The operator, the node whose text is replaced, and the new text."""


def mutants(module: str, source: str) -> list[Mutant]:
    """Every mutant of this source, in the order of its lines."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            node.body = [one for one in node.body if not isinstance(one, NAMED)]
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = [
        Mutant(
            module,
            operator,
            statement,
            node.lineno,
            node.end_lineno or node.lineno,
            starts[node.lineno - 1] + node.col_offset,
            starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0),
            text,
            coroutine,
        )
        for (statement, coroutine), (operator, node, text) in _changes(tree)
    ]
    return sorted(set(found), key=lambda one: (one.start, one.end, one.operator, one.replacement))


# The line of the statement, and the lines of the coroutine.
_Place = tuple[int, tuple[int, int] | None]


def _changes(tree: ast.Module) -> Iterator[tuple[_Place, Change]]:
    for place, node in _decisive(tree, (1, None)):
        for operator in OPERATORS:
            for change in operator(node):
                yield place, change


def _decisive(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, ast.AST]]:
    """The node and everything below it that may decide something, each with its place.

    A handler and a case are executed apart from the statement that they belong to.
    """
    statement, coroutine = place
    if isinstance(node, ast.stmt | ast.ExceptHandler):
        statement = node.lineno
    elif isinstance(node, ast.match_case):
        statement = node.pattern.lineno
    if isinstance(node, ast.AsyncFunctionDef):
        coroutine = node.body[0].lineno, node.end_lineno or node.lineno
    elif isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        coroutine = None
    place = statement, coroutine
    yield place, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_remark(child):
                yield from _decisive(child, place)


def _is_remark(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    if isinstance(value, ast.Constant):
        return True
    return isinstance(value, ast.Call) and _root(value.func) in REMARKS


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def flip_comparison(node: ast.AST) -> Iterator[Change]:
    yield from _compared(node, FLIPPED, "flip comparison")


def shift_boundary(node: ast.AST) -> Iterator[Change]:
    yield from _compared(node, SHIFTED, "shift boundary")


def _compared(
    node: ast.AST, table: dict[type[ast.cmpop], type[ast.cmpop]], operator: str
) -> Iterator[Change]:
    if not isinstance(node, ast.Compare):
        return
    for at, compared in enumerate(node.ops):
        if type(compared) in table:
            changed = copy.deepcopy(node)
            changed.ops[at] = table[type(compared)]()
            yield operator, node, ast.unparse(changed)


def swap_and_or(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "swap and/or", node, f"({ast.unparse(changed)})"


def drop_operand(node: ast.AST) -> Iterator[Change]:
    """One condition of several is not looked at."""
    if isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            changed = copy.deepcopy(node)
            del changed.values[at]
            yield "drop operand", node, f"({ast.unparse(changed)})"


def swap_arithmetic(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        changed = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        yield "swap arithmetic", node, f"({ast.unparse(changed)})"


def negate(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negate", node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        test = node.test
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            yield "negate", test, f"(not {ast.unparse(test)})"


def swap_results(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.IfExp):
        changed = ast.IfExp(node.test, node.orelse, node.body)
        yield "swap results", node, f"({ast.unparse(changed)})"


def shift_constant(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        assert isinstance(node.value, int | float)
        for step in (1, -1):
            yield "shift constant", node, f"({node.value + step})"


def flip_truth(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "flip truth", node, str(not node.value)


def drop_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Raise():
            yield "drop raise", node, "pass"
        case ast.Assign(targets=[ast.Name() | ast.Tuple()]):
            # Without it the name would be unknown: every test that comes by would notice.
            pass
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Delete():
            yield "drop statement", node, "pass"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Assign():
            yield "drop statement", node, "pass"
        case ast.Continue() | ast.Break() | ast.Return(value=None):
            yield "drop statement", node, "pass"


def drop_handler(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield "drop handler", node.type, "()"


OPERATORS: tuple[Callable[[ast.AST], Iterator[Change]], ...] = (
    flip_comparison,
    shift_boundary,
    swap_and_or,
    drop_operand,
    swap_arithmetic,
    negate,
    swap_results,
    shift_constant,
    flip_truth,
    drop_statement,
    drop_handler,
)
