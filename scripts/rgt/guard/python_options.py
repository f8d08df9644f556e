"""What a script's command line chooses in it: `box.py ls` runs neither its `down` command nor what `--force` guards.

argparse, click, typer and sys.argv are read; what cannot be known chooses nothing.
"""

from __future__ import annotations

import ast

Answer = bool | None


class Choices:
    """answered(test): what the line says to an `if`; unchosen: functions of subcommands that the line does not name."""

    def __init__(self, tree: ast.AST, arguments: list[str]) -> None:
        self.arguments = arguments
        self.values: dict[str, str] = {}  # of args.NAME
        self.names: dict[str, ast.expr] = {}  # variables that get one value in the whole file
        self.unchosen: set[str] = set()
        self.patched: set[str] = set()  # by unittest.mock
        if any("\ue001" in word for word in arguments):
            return
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.patched.update(text for call in calls if _last(call) == "patch" for text in _texts(call.args))
        self._read_variables(tree)
        self._read_options(calls)
        self._read_commands(tree, calls)

    def _read_variables(self, tree: ast.AST) -> None:
        targets = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                self.names |= {name: node.value} if targets.count(name) == 1 else {}

    def _read_options(self, calls: list[ast.Call]) -> None:
        for call in calls:
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            names = _texts(call.args)
            if _last(call) != "add_argument" or not names or not names[0].startswith("-"):
                continue
            action, key = "".join(_texts([given.get("action")])), max(names, key=len).lstrip("-").replace("-", "_")
            key = "".join(_texts([given.get("dest")])) or key
            present = any(word.split("=")[0] in names for word in self.arguments)
            following = [self.arguments[i + 1] for i, word in enumerate(self.arguments[:-1]) if word in names]
            following += [
                word.split("=", 1)[1] for word in self.arguments if "=" in word and word.split("=")[0] in names
            ]
            if action in ("store_true", "store_false"):
                self.values[key] = str(present == (action == "store_true"))
            elif not action and (following or not present):
                value = following[-1:] or _texts([given.get("default")])
                self.values |= {key: value[0]} if value else {}

    def _read_commands(self, tree: ast.AST, calls: list[ast.Call]) -> None:
        parsers = {name: _texts(node.args)[0] for name, node in self.names.items() if _adds_parser(node)}  # type: ignore[attr-defined]
        titles = {_texts(call.args)[0] for call in calls if _adds_parser(call)}
        functions: dict[str, str] = {}  # of a subcommand
        for call in calls:
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if _last(call) == "set_defaults" and isinstance(owner, ast.Name) and owner.id in parsers:
                named = [keyword.value.id for keyword in call.keywords if isinstance(keyword.value, ast.Name)]
                functions |= dict.fromkeys(named, parsers[owner.id])
        for node in [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]:
            for mark in node.decorator_list:
                if (_last(mark) if isinstance(mark, ast.Call) else getattr(mark, "attr", "")) == "command":
                    own = _texts(mark.args) if isinstance(mark, ast.Call) else []
                    functions[node.name] = own[0] if own else node.name.replace("_", "-")
            if any(_last(call) == "Fire" for call in calls):
                functions.setdefault(node.name, node.name)
        for table in [one for one in ast.walk(tree) if isinstance(one, ast.Dict)]:  # {"down": down}[sys.argv[1]]()
            pairs = [(_texts([key]), value) for key, value in zip(table.keys, table.values, strict=True)]
            functions |= {value.id: key[0] for key, value in pairs if key and isinstance(value, ast.Name)}
        titles |= set(functions.values()) if len(functions) > 1 else set()
        chosen = next((word for word in self.arguments if word in titles), None)
        called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        if chosen:
            self.unchosen = {name for name, title in functions.items() if title != chosen} - called
            dests = [
                _texts([k.value]) for c in calls if _last(c) == "add_subparsers" for k in c.keywords if k.arg == "dest"
            ]
            self.values |= {dest[0]: chosen for dest in dests if dest}

    def answered(self, test: ast.expr) -> Answer:
        """args.cmd == "down", args.yes, sys.argv[1] in ("down", "rm"), "--all" in sys.argv, not, and, or."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer = self.answered(test.operand)
            return None if answer is None else not answer
        if isinstance(test, ast.BoolOp):
            answers, sure = [self.answered(one) for one in test.values], isinstance(test.op, ast.Or)
            return sure if sure in answers else None if None in answers else not sure
        if not isinstance(test, ast.Compare):
            return {"True": True, "False": False}.get(self._given(test) or "")
        right, equal = test.comparators[0], isinstance(test.ops[0], ast.Eq | ast.In)
        if len(test.ops) > 1 or not isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            return None
        if _is_argv(right) and _texts([test.left]):
            unknown = any("\ue001" in word for word in self.arguments)
            return None if unknown else (_texts([test.left])[0] in self.arguments) == equal
        given = self._given(test.left)
        options = _texts(right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right])
        return None if given is None or not options else (given in options) == equal

    def _given(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Attribute):
            return self.values.get(node.attr)
        if isinstance(node, ast.Name) and node.id in self.names and not isinstance(self.names[node.id], ast.Name):
            return self._given(self.names[node.id])
        if isinstance(node, ast.Subscript) and _is_argv(node.value) and isinstance(node.slice, ast.Constant):
            at = node.slice.value
            value = self.arguments[at - 1] if isinstance(at, int) and 0 < at <= len(self.arguments) else "\ue001"
            return None if "\ue001" in value else value
        return None


def _last(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _adds_parser(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last(node) == "add_parser" and bool(_texts(node.args))


def _is_argv(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "argv"


def _texts(nodes: list[ast.expr] | list[ast.expr | None]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
