"""What a script's command line chooses in it: `box.py ls` runs neither its `down` command nor what `--force` guards.

argparse, click and comparisons are read by their words alone; what cannot be known chooses nothing.
"""

from __future__ import annotations

import ast


class Choices:
    """answered(test): what the line says to an `if`; unchosen: functions of subcommands that the line does not name."""

    def __init__(self, tree: ast.AST, arguments: list[str]) -> None:
        self.arguments, self.unsure = arguments, any("\ue001" in word for word in arguments)
        self.flags: dict[str, bool] = {}  # args.NAME of what is either given or not
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.patched = {text for call in calls if last_name(call) == "patch" for text in texts(call.args)}
        titles = {text for call in calls if last_name(call) == "add_parser" for text in texts(call.args)}
        for call in calls:
            names = texts(call.args)
            if names and "store_true" in texts([one.value for one in call.keywords]):
                key = max(names, key=len).lstrip("-").replace("-", "_")
                self.flags[key] = not set(names).isdisjoint(arguments)
        functions = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
        for name, node in functions.items():
            titles |= {name} if "command" in map(last_name, node.decorator_list) else set()
        self.chosen = next((word for word in arguments if word in titles and not self.unsure), "")
        self.unchosen = {name for name in functions if self.chosen and name in titles - {self.chosen}}

    def answered(self, test: ast.expr) -> bool | None:
        """args.cmd == "down", sys.argv[1] in ("down", "rm"), "--all" in sys.argv, not args.yes."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer = self.answered(test.operand)
            return None if answer is None else not answer
        if isinstance(test, ast.Attribute) and not self.unsure:
            return self.flags.get(test.attr)
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.In):
            given = {node.value for node in ast.walk(test) if isinstance(node, ast.Constant)}
            if not given.isdisjoint(self.arguments):
                return True
            asks = self.chosen or ("argv" in ast.dump(test.comparators[0]) and not self.unsure)
            return False if given and asks else None
        return None


def last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def texts(nodes: list[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
