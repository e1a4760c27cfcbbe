"""Rules about the code of a chapter, read from its syntax trees."""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
from collections.abc import Iterator

from fedbook.book.checked_book import Book, Problem
from fedbook.book.product import tags

ABSOLUTE = re.compile(r"^(/[A-Za-z_.][\w.-]*(/|$)|~/|[A-Za-z]:[\\/])")
MACHINE_PATH = re.compile(r"(?<![\w./:])(/(home|tmp|root|Users|mnt|opt|var|usr|srv)/[\w.-]+|[A-Z]:\\\\?\w+)")
TYPES = {"int": (int,), "float": (float, int), "str": (str,), "bool": (bool,), "list": (list,), "tuple": (tuple,)}


def plain_python(book: Book) -> Iterator[Problem]:
    """Cells are plain Python: no magics, no shell, no syntax errors."""
    for number, cell in book.code():
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            magic = re.search(r"(?m)^\s*(%|!).*$", cell.source)
            text = f"{magic[0].strip()!r} is a magic or a shell command" if magic else f"syntax error: {error.msg}"
            yield Problem("plain-python", number, text)


def forbidden(book: Book) -> Iterator[Problem]:
    """What chapters do not do: star imports, sys.path, tqdm, input, bare except, absolute paths."""
    for number, _, tree in book.trees():
        for node in ast.walk(tree):
            reason = _forbidden(node)
            if reason:
                yield Problem("forbidden", number, reason)
    for number, source in book.prose():
        for match in MACHINE_PATH.finditer(source):
            yield Problem("forbidden", number, f"the path {match[0]!r} of one machine")


def _forbidden(node: ast.AST) -> str:
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        return f"from {node.module} import *"
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    if any(module.split(".")[0] == "tqdm" for module in modules):
        return "tqdm is imported; progress comes from the package, silent when headless"
    if isinstance(node, ast.Attribute) and node.attr == "path" and getattr(node.value, "id", "") == "sys":
        return "sys.path"
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "input":
        return "input() waits for a person"
    if isinstance(node, ast.ExceptHandler) and node.type is None:
        return "a bare except"
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and ABSOLUTE.match(node.value):
        return f"the absolute path {node.value!r}"
    return ""


def parameters_are_literals(book: Book) -> Iterator[Problem]:
    """The parameters cell holds ``name: type = literal  # comment`` and nothing else."""
    for number, cell, tree in book.trees():
        if "parameters" not in tags(cell):
            continue
        comments = _comment_lines(cell.source)
        for node in tree.body:
            text = _parameter(node)
            if not text and not comments & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)):
                text = f"{node.target.id} has no comment"  # type: ignore[attr-defined]
            if text:
                yield Problem("parameters-literals", number, f"line {node.lineno}: {text}")


def _parameter(node: ast.stmt) -> str:
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
        return "allowed is only `name: type = literal  # comment`"
    try:
        value = ast.literal_eval(node.value)
    except ValueError:
        return f"{node.target.id} is computed; a run at other parameters would keep the old value"
    kind = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
    types = TYPES.get(getattr(kind, "id", ""))
    if types is None:
        return f"{node.target.id}: type {ast.unparse(node.annotation)}; allowed are {', '.join(TYPES)}"
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return f"{node.target.id}: {value!r} is no {ast.unparse(node.annotation)}"
    return ""


def _comment_lines(source: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT and token.string.strip("# ")}


def plots_are_shown(book: Book) -> Iterator[Problem]:
    """A cell that draws with pyplot ends with ``plt.show()``, so that no object is printed."""
    for number, _, tree in book.trees():
        calls = [node for statement in tree.body for node in _calls(statement)]
        draws = [ast.unparse(call.func) for call in calls]
        if any(name.startswith("plt.") or name.endswith(".subplots") for name in draws):
            last = tree.body[-1]
            if not isinstance(last, ast.Expr) or ast.unparse(last.value) != "plt.show()":
                yield Problem("plot-shown", number, "a cell that draws ends with plt.show()")


def _calls(statement: ast.AST) -> Iterator[ast.Call]:
    """The calls that running a statement makes itself: bodies of functions are not entered."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(statement, ast.Call):
        yield statement
    for child in ast.iter_child_nodes(statement):
        yield from _calls(child)


def widgets_keep_what_they_read(book: Book) -> Iterator[Problem]:
    """No later cell overwrites a name that a widget's picture reads: it answers after the last cell has run."""
    functions: dict[str, set[str]] = {}
    reading: dict[int, set[str]] = {}
    for number, cell, _ in book.trees():
        table = symtable.symtable(cell.source, f"cell {number}", "exec")
        bound = {name.get_name() for name in table.get_symbols() if name.is_assigned()}
        for widget, names in reading.items():
            for name in sorted(bound & names):
                text = f"{name} is overwritten here, and the widget of cell {widget} reads it when it is moved"
                yield Problem("widget-names", number, text)
        functions |= {one.get_name(): _read(one) for one in table.get_children()}
        if "widget" in tags(cell):
            used = {name.get_name() for name in table.get_symbols() if name.is_referenced()}
            reading[number] = _reached(used & functions.keys(), functions)


def _read(scope: symtable.SymbolTable) -> set[str]:
    """The names of the notebook that the body of a function, or of one inside it, reads."""
    own = {name.get_name() for name in scope.get_symbols() if name.is_global() and name.is_referenced()}
    return own.union(*map(_read, scope.get_children()))


def _reached(names: set[str], functions: dict[str, set[str]]) -> set[str]:
    """``names``, what those functions read, what the functions among that read, and so on."""
    seen: set[str] = set()
    while fresh := names - seen:
        seen |= fresh
        names = set().union(*(functions.get(name, set()) for name in fresh))
    return seen


CODE_RULES = (
    plain_python,
    forbidden,
    parameters_are_literals,
    plots_are_shown,
    widgets_keep_what_they_read,
)
