"""Imports go one way: a floor imports only from floors below it."""

import ast
from pathlib import Path

import pytest

import fedbook

ROOT = Path(fedbook.__file__).parent
# bottom first; modules in one entry may import each other
FLOORS = [
    {"arguments", "settings", "randomness", "intervals", "progress", "interrupts", "outputs", "wire", "shipped"},
    {"partition"},
    {"geometry"},
    {"compression"},
    {"data"},
    {"privacy"},
    {"federation"},
    {"learning"},
    {"papers"},
    {"experiment", "advice"},
    {"engines"},
    {"lab"},
    {"chapters"},
    {"book"},
    {"command", "completion", "__main__"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
PAPERS = {path.name for path in (ROOT / "papers").iterdir() if (path / "__init__.py").exists()}


def imported(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import of fedbook in a file, also inside functions; a name counts as a module."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedbook":
            modules += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [(node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "fedbook"]
    return modules


def breaks(path: Path, root: Path = ROOT) -> list[str]:
    """Lines of a file that import from a floor above it, or one paper from another; only fedavg is shared."""
    parts = path.relative_to(root).with_suffix("").parts
    wrong = []
    for line, module in imported(path):
        target = module.split(".")[1:]
        if not target or target[0] not in FLOOR:
            continue  # fedbook itself
        upward = FLOOR[target[0]] > FLOOR[parts[0]]
        other = parts[0] == "papers" == target[0] and len(parts) > 2 and target[1] in PAPERS - {parts[1], "fedavg"}
        if upward or other:
            wrong.append(f"fedbook/{path.relative_to(root)}:{line} imports {module}")
    return wrong


def test_every_module_has_a_floor():
    names = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()}
    assert names - {"__init__"} == set(FLOOR)


def test_imports_go_one_way():
    wrong = [line for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py" for line in breaks(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("privacy/audit.py", "from fedbook.federation.loop import Rounds"),
        ("learning/models.py", "def f():\n    import fedbook.papers"),
        ("papers/fedsc/algorithm.py", "from fedbook.papers.cvfl import Config"),
    ],
)
def test_a_break_is_named(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert len(breaks(path, tmp_path)) == 1
