"""Python on the command line or in a named script, read as a tree: what it deletes, ends or starts.

The values of plain assignments, loops over globs, os.path.join and command-line options are known.
"""

from __future__ import annotations

import ast
import contextlib
import os
import textwrap

from rgt.guard.clients import ENDS, empties, is_ending_call, request
from rgt.guard.precious_paths import OWN, marker
from rgt.guard.quick_start import LIKE, WORDS, re
from rgt.guard.shell_walk import Walker, decoded
from rgt.guard.word_expansion import MATCHES, VALUES, State

Values = list[str]


def walk(guard: Walker, text: str, state: State, arguments: Values, is_script: bool) -> None:
    tree = ast.parse(textwrap.dedent(text))
    _Reader(guard, state, arguments, is_script).read(tree)


class _Reader(ast.NodeVisitor):
    def __init__(self, guard: Walker, state: State, arguments: Values, is_script: bool) -> None:
        self.guard, self.state, self.is_script = guard, state, is_script
        self.values: dict[str, Values] = {}
        self.names: dict[str, str] = {}  # import aliases, and what made a variable
        self.imported: set[str] = set()  # libraries
        self.given = arguments
        self.options: dict[str, Values] = {"argv": self.given}  # of argparse and click: given, or the default
        self.functions: dict[str, list[str]] = {}  # own functions and their parameters

    def read(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                base = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
                self.names.update({alias.asname or alias.name: base + alias.name for alias in node.names})
                self.imported.update((base + alias.name).split(".")[0] for alias in node.names)
            elif isinstance(node, ast.FunctionDef):
                self.functions[node.name] = [one.arg for one in node.args.args if one.arg != "self"]
        before = len(self.guard.acts)
        self.visit(tree)  # first for the values: a function is written before it is called
        del self.guard.acts[before:]
        self.state.links.clear()
        self.visit(tree)

    def learn(self, node: ast.Call, last: str, own: Values, first: Values) -> None:
        """What a call says of values: parameters of own functions, endings that sift names, options of the line."""
        own_names = [one.arg for one in node.func.args.args] if isinstance(node.func, ast.Lambda) else []
        for parameter, argument in zip(own_names or self.functions.get(last, []), node.args, strict=False):
            self.values[parameter] = self.values.get(parameter, []) + self.of(argument)
        if last == "endswith" and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            held = [one for one in own if one.endswith(tuple(first))]
            self.values[node.func.value.id] = held or [f"*{ending}" for ending in first]
        if last in ("add_argument", "option", "argument", "Option"):  # add_argument("--dir", default="runs")
            names = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
            given = [self.given[i + 1] for i, word in enumerate(self.given[:-1]) if word in names]
            given += [word.split("=", 1)[1] for word in self.given if word.split("=")[0] in names and "=" in word]
            default = next((self.of(k.value) for k in node.keywords if k.arg == "default"), [])
            self.options.update({one.lstrip("-").replace("-", "_"): given or default for one in names})

    # -- values

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.values[target.id] = self.of(node.value)
                made = self.called(node.value)
                if isinstance(node.value, ast.Call | ast.ListComp) or made.split(".")[0] in self.imported:
                    self.names[target.id] = made
            elif isinstance(target, ast.Attribute):
                self.options[target.attr] = self.of(node.value)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        for one in node.generators:
            self.bind(one.target, one.iter)
            for test in one.ifs:
                self.visit(test)
        self.generic_visit(node)

    visit_SetComp = visit_GeneratorExp = visit_ListComp

    def bind(self, target: ast.expr, source: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(source, ast.Call) and self.called(source.func) == "os.walk":
            names = [one.id for one in target.elts if isinstance(one, ast.Name)]
            self.values.update({one: [OWN] for one in names[1:]} | {one: self.of(source.args[0]) for one in names[:1]})
            return  # root, folders, files: what is lost is known when their names are sifted
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(one, ast.Name):
                self.values[one.id] = self.of(source)
                if not self.values[one.id]:
                    self.names[one.id] = self.called(source)  # what a client gave is the client's

    def of(self, node: ast.expr | None) -> Values:
        """The strings that an expression may be; none when that cannot be known."""
        self.guard.step()
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.Name):
            return self.values.get(node.id) or self.options.get(node.id, [])  # click gives options as parameters
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [value for one in node.elts[:VALUES] for value in self.of(one)]
        if isinstance(node, ast.JoinedStr):
            return self.joined([self.of(one) or [marker("value")] for one in node.values], "")
        if isinstance(node, ast.FormattedValue):
            return self.of(node.value)
        if isinstance(node, ast.BinOp):
            return self.of_sum(node)
        if isinstance(node, ast.Subscript):
            return self.of_item(node)
        if isinstance(node, ast.Call):
            return self.of_call(node)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            self.visit_ListComp(node)
            return self.of(node.elt)
        if isinstance(node, ast.Attribute):
            return self.of(node.value) or self.options.get(node.attr, [])
        return self.of(node.value) if isinstance(node, ast.Await | ast.Starred) else []

    def of_sum(self, node: ast.BinOp) -> Values:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.left, ast.List) or isinstance(node.right, ast.List):  # ["rm", "-rf"] + paths
            return left + right
        sign = "/" if isinstance(node.op, ast.Div) else ""
        known = left and (right or sign or "://" in left[0])
        return self.joined([left, right or [marker("value")]], sign) if known else []

    def of_item(self, node: ast.Subscript) -> Values:
        """os.environ["X"], a row of a file of settings, or whatever a list may hold."""
        if self.called(node.value) == "os.environ":
            return self.environ(self.of(node.slice))
        texts, keys = self.of(node.value), self.of(node.slice)
        if keys and texts and "\n" in texts[0]:
            return re.findall(rf"(?m)[\"']?\b{re.escape(keys[0])}[\"']?\s*[:=]\s*[\"']?([^\"',\n}}]+)", texts[0])
        return texts

    def joined(self, parts: list[Values], sign: str) -> Values:
        found = [""]
        for number, part in enumerate(parts):
            if number and any("://" in value for value in part):  # a piece of an answer, not of an address
                part = [marker("value")]
            found = [a + (sign if number else "") + b for a in found for b in part][:MATCHES]
        return found

    def of_call(self, node: ast.Call) -> Values:
        name, arguments = self.called(node.func), [self.of(one) for one in node.args]
        last = name.rpartition(".")[2]
        own = self.of(node.func.value) if isinstance(node.func, ast.Attribute) else []
        if last in ("cwd", "getcwd"):
            return [self.state.cwd]
        if last in WORDS["python temporary"]:
            return [OWN]
        if last in WORDS["python starts"] and name.partition(".")[0] in ("subprocess", "os") and node.args:
            return [marker(" ".join(self.of(node.args[0])))]  # what it prints
        if name in ("os.environ.get", "os.getenv", "os.environ.setdefault"):
            return self.environ(*arguments)
        if last in ("glob", "iglob", "rglob", "listdir", "scandir", "iterdir", "walk"):
            return self.paths(last, own, arguments[0] if arguments else [])
        if last in ("read", "read_text", "load", "safe_load", "loads") and (paths := own or (arguments or [[]])[0]):
            texts = [self.guard.content(path, self.state) for path in paths[:1] if "\n" not in path]
            return [text for text in texts if not text.startswith("\ue001")] or paths
        if last == "join" and own and len(arguments) == 1:
            return [own[0].join(arguments[0])]
        if last == "join":
            return self.joined([one or [marker("value")] for one in arguments], "/")
        if last in WORDS["python through"]:
            values = own or (arguments[0] if arguments else [])
            values = [decoded(value) for value in values] if last == "b64decode" else values
            return [word for value in values for word in value.split()] if last == "split" else values
        if last.endswith("Path"):
            return self.joined([one for one in arguments if one], "/") if arguments else ["."]
        return (arguments or [own])[0] or own if last in WORDS["python same path"] else own

    def paths(self, last: str, own: Values, given: Values) -> Values:
        """Of glob.glob, Path.rglob, os.listdir."""
        if "glob" in last:
            given = [f"**/{one}" for one in given] if last == "rglob" else given
            patterns = self.joined([own, given], "/") if own and given else given
            return [path for one in patterns for path in self.guard.glob(one, self.state)][:MATCHES]
        rows = []
        for place in own if last == "iterdir" else given or ["."]:
            entries = [name for name, _ in self.guard.precious.entries(self.state.path(place))]
            rows += entries if last == "listdir" else [f"{place}/{name}" for name in entries]
        return rows[:VALUES]

    def environ(self, names: Values, default: Values | None = None) -> Values:
        known = [self.guard.variable(name, self.state) for name in names if name in self.state.variables]
        return known or default or [marker(name) for name in names]

    def called(self, node: ast.expr) -> str:
        """shutil.rmtree for whatever alias it has here."""
        if isinstance(node, ast.Attribute):
            return f"{self.called(node.value)}.{node.attr}"
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.ListComp):
            return self.called(node.generators[0].iter)
        if not isinstance(node, ast.Call):
            return ""
        if isinstance(node.func, ast.Name) and node.func.id in WORDS["python through"] and node.args:
            return self.called(node.args[0])
        name, given = self.called(node.func), [self.of(one) for one in node.args]
        if name in ("__import__", "importlib.import_module") and given and given[0]:
            return given[0][0]
        if name == "getattr" and len(given) > 1 and given[1]:
            return f"{self.called(node.args[0])}.{given[1][0]}"
        return name + "()"

    # -- calls

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = self.called(node.func)
        last = name.rpartition(".")[2]
        own = self.of(node.func.value) if isinstance(node.func, ast.Attribute) else []
        first = self.of(node.args[0]) if node.args else next((self.of(k.value) for k in node.keywords), [])
        self.learn(node, last, own, first)
        base = name.split(".")[0].split("(")[0]
        if last in WORDS["python maps"] and node.args:  # map(shutil.rmtree, paths)
            self.visit_Call(ast.Call(func=node.args[0], args=node.args[1:], keywords=[]))
        elif base in WORDS["sdk clients"]:
            self.call(node, name, base)
        elif last in WORDS["python starts"] and (base in WORDS["python starters"] or name in WORDS["python starts"]):
            self.start(node, first)
        elif last == "exec_command" or (base in ("fabric", "invoke", "asyncssh") and last in ("run", "sudo")):
            self.guard.script(first[0] if first else "", self.state.elsewhere())
        elif name in ("os.kill", "os.killpg") and (not node.args[1:] or self.of(node.args[1]) != ["0"]):
            self.guard.run(["kill", *(one if one.isdigit() else marker(one) for one in first[:1])], self.state, "")
        elif base == "psutil" and last in ("kill", "terminate", "suspend"):
            self.guard.run(["pkill", "python" if "process_iter" in name else ""], self.state, "")
        elif name in ("exec", "eval") and first:
            with contextlib.suppress(SyntaxError, ValueError):
                walk(self.guard, first[0], self.state, [], False)
        elif not self.changes_files(node, name, base, own, first):
            self.call(node, name, base)

    def changes_files(self, node: ast.Call, name: str, base: str, own: Values, first: Values) -> bool:
        last, words = name.rpartition(".")[2], ["python", f"{name}(...)"]
        if last in WORDS["python removes"] or name in ("os.remove", "fs.rm"):
            self.guard.lose(first if base in ("os", "shutil") or not own else own, self.state, words, f"{last} removes")
        elif base in self.imported - WORDS["sdk harmless"] and LIKE.deleting_function.fullmatch(last) and first:
            self.guard.lose(first, self.state, words, f"{last} removes")  # by any library, often elsewhere
            return False
        elif last == "truncate" and (name == "os.truncate" or not self.is_script):
            self.guard.lose(own or first, self.state, words, "truncates", False)
        elif self.is_script:
            return False
        elif paths := self.written(node, last, own, first):
            for path in paths:
                saves = last in WORDS["python folders"] or not LIKE.saving_call.match(last)
                if saves and os.path.isdir(self.state.path(path)):
                    self.guard.lose([path], self.state, words, "saves over")
                self.guard.overwrite(path, self.state, words)
        elif last in WORDS["python over"] and len(node.args) > 1 and base in ("shutil", "os"):
            for target in self.of(node.args[1])[:1]:
                self.guard.run(["cp" if last.startswith("copy") else "mv", *first, target], self.state.copy(), "")
        elif last in ("execute", "executescript", "executemany") and first:
            self.guard.run(["sqlite3", *own, first[0]], self.state.copy(), "")
        elif last in ("rename", "replace") and own and first and "Path" in name:
            self.guard.overwrite(first[0], self.state, words)
        else:
            return False
        return True

    def written(self, node: ast.Call, last: str, own: Values, first: Values) -> Values:
        """The files that a call writes anew, in any library: by its mode, or by a name such as save, dump, to_csv."""
        given = {k.arg: self.of(k.value) for k in node.keywords}
        second = self.of(node.args[1]) if len(node.args) > 1 else []
        modes = [*second, *given.get("mode", []), *given.get("flag", []), *(first if last == "open" and own else [])]
        anew = LIKE.opening_call.fullmatch(last) and any(LIKE.anew_mode.fullmatch(mode) for mode in modes)
        if anew or (last == "input" and given.get("inplace") == ["True"]):
            return own if last == "open" and own and first and LIKE.anew_mode.fullmatch(first[0]) else first
        if last.startswith("write_") and own:
            return own
        every = [*map(self.of, node.args), *given.values()] if LIKE.saving_call.fullmatch(last) else []
        return [value for values in every for value in values]

    def start(self, node: ast.Call, first: Values) -> None:
        argv = next((one for one in node.args[:2] if isinstance(one, ast.List | ast.Tuple)), None)
        if argv:  # run(argv), os.execvp(file, argv)
            words = [value for one in argv.elts for value in (self.of(one) or [marker("value")])]
            self.guard.run(words, self.state.copy(), "")
        elif len(first) == 1 or any(" " in one for one in first[:1]):
            for one in first:
                self.guard.script(one, self.state.copy())
        elif first:
            self.guard.run(first, self.state.copy(), "")

    def call(self, node: ast.Call, name: str, base: str) -> None:
        """A call on a platform's SDK or an HTTP library."""
        last, words = name.rpartition(".")[2], ["python", f"{name}(...)"]
        calls = self.guard.table["calls"]
        known = next((c for c in calls if c == last or ("." in c and f".{name}".endswith(f".{c}"))), "")
        values = [value for one in (*node.args, *(k.value for k in node.keywords)) for value in self.texts(one)]
        dry = any(k.arg in ("DryRun", "dry_run") and self.of(k.value) == ["True"] for k in node.keywords)
        mocked = not self.imported.isdisjoint(WORDS["python mocks"])
        if dry or mocked or name == "ray.shutdown":  # which only leaves the cluster
            return
        box = values[0] if values else ""
        given = [f"--{k.arg}={'.'.join(self.of(k.value))}" for k in node.keywords]
        client = base in WORDS["sdk clients"] or base in self.guard.table["commands"]
        foreign = "." in name and (base in self.imported or "*" in self.names) and base not in WORDS["sdk harmless"]
        url = next((value for value in values if "://" in value or value.startswith(("/", "\ue001"))), "")
        told = [*(getattr(one, "attr", "") for one in node.args), *values] if LIKE.acting_call.search(last) else []
        verb = next((one for one in told if one.lower() in ENDS), "")  # action(id, DELETE)
        called = f"{name.rpartition('.')[0]}.{verb.lower()}" if verb else name
        ends = (client or (foreign and not self.is_script)) and is_ending_call(called, client)
        if known or ends or (client and empties(["", *given, ast.unparse(node)])):  # terminates, or scales to nothing
            self.guard.act("end", f"{name} ends it", words, box, calls.get(known, ""), box if known else "")
        elif url and last in WORDS["web calls"]:
            method = last.upper() if last not in ("request", "Request", "urlopen") else "GET"
            method = next((v for v in values if v.upper() in ("DELETE", "POST", "PUT", "PATCH")), method).upper()
            method = "POST" if method == "GET" and last == "Request" and len(values) > 1 else method
            request(self.guard, method, url, " ".join(f'"{value}"' for value in values), words)

    def texts(self, node: ast.expr) -> Values:
        if isinstance(node, ast.Dict):
            return [v for one in (*node.keys, *node.values) if one for v in self.texts(one)]
        if isinstance(node, ast.Call):
            return [v for one in node.args for v in self.texts(one)] or self.of(node)
        return self.of(node)
