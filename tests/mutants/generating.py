"""Faults of a module: all that Cosmic Ray can make which change more than annotations."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

OPERATORS = [name for name in operator_names() if not name.startswith("core/Variable")]
"""Those that need no arguments."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str
    code: str
    """The whole file with the fault in it."""

    line: int
    before: str
    after: str
    """The line that changes, and how."""

    @property
    def words(self) -> str:
        """What it is, wherever the line has moved to."""
        return f"{self.path}: {self.before} -> {self.after}"

    def __str__(self) -> str:
        return f"line {self.line} of {self.words}"


def mutants_of(path: str, random: np.random.Generator) -> Iterator[Mutant]:
    """Faults of a file in random order, one of each line before a second of any."""
    met: set[int] = set()
    later = []
    for fault in _shuffled(path, random):
        if fault.line in met:
            later.append(fault)
        else:
            met.add(fault.line)
            yield fault
    yield from later


def _shuffled(path: str, random: np.random.Generator) -> Iterator[Mutant]:
    source = Path(path).read_text()
    plain = _behaviour(source)
    tree = get_ast(source)
    places = [(name, k) for name in OPERATORS for k in range(_Counter.count(tree, get_operator(name)()))]
    for i in random.permutation(len(places)):
        name, occurrence = places[i]
        code = mutate_code(source, get_operator(name)(), occurrence)
        if code is not None and _behaviour(code) not in ("", plain):
            yield _mutant(path, source, code)


class _Counter(Visitor):
    """Counts the places that an operator can change."""

    def __init__(self, operator):
        self.operator, self.found = operator, 0

    def visit(self, node):
        self.found += sum(1 for _ in self.operator.mutation_positions(node))
        return node

    @classmethod
    def count(cls, tree, operator):
        counter = cls(operator)
        counter.walk(tree)
        return counter.found


def _behaviour(code: str) -> str:
    """Syntax tree without what has no effect: annotations, and what keeps others from assigning to a field."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.keyword) and node.arg == "frozen":
            node.value = ast.Constant(None)
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def _mutant(path: str, source: str, code: str) -> Mutant:
    old, new = source.splitlines(), code.splitlines()
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    lo, hi, to, end = next((i, j, k, m) for kind, i, j, k, m in changes if kind != "equal")
    return Mutant(path, code, lo + 1, " ".join(map(str.strip, old[lo:hi])), " ".join(map(str.strip, new[to:end])))
