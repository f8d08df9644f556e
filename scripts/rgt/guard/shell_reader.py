"""Shell text -> a tree: words keep their quoting and expansions, so that data is not taken for a command.

    parse("cd runs && rm -rf $X")  ->  Node("seq", [Simple([cd, runs]), Simple([rm, -rf, $X])])

Total: whatever the text is, there is a tree. bash is read in full; of zsh, fish and csh what differs in form (blocks
as words, `end`, bare brackets). Scanned by hand: a plain line must not pay for expressions.
"""

from __future__ import annotations

from rgt.guard.quick_start import LIKE, re

DEPTH = 40  # of nested compound commands and substitutions
_BLANKS = " \t\r\n"
_STOPS = frozenset(_BLANKS + "\\'\"$`;&|<>()#{}*?[]~!=,")  # a plain stretch of a word ends at these
_OPERATORS = ("\n", ";;&", ";;", ";&", ";", "&&", "||", "|&", "|", "&", "(", ")")
_REDIRECTS = ("<<<", "<<-", "<<", "<>", "<&", ">>!", ">>", ">|", ">!", ">&!", ">&", "&>>", "&>", "<", ">")
_GROUPS = {"{": ("}",), "begin": ("end",), "if": ("fi", "end"), "while": ("do",), "until": ("do",)}
_RESERVED = frozenset("! time coproc for foreach select case try finally".split()) | _GROUPS.keys()
DECLARES = frozenset("local declare typeset export readonly".split())
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\033", "f": "\f", "v": "\v", "\\": "\\"}


class Node:
    """kind: simple, seq, pipe, for, while, branch, function, subshell. `joint`: && or || when it stands before."""

    __slots__ = ("assigns", "joint", "kind", "name", "nodes", "redirects", "words")

    def __init__(self, kind: str, nodes: list[Node] | None = None, name: str = "") -> None:
        self.kind, self.name, self.joint = kind, name, ""
        self.nodes: list[Node] = nodes or []
        self.words: list[Word] = []
        self.assigns: list[tuple[str, str, list[Word]]] = []
        self.redirects: list[Redirect] = []


Part = tuple[str, str, bool, "Node | None"]  # kind (text, var, sub, proc), its text, quoted, what sub and proc run


class Word(list[Part]):
    """One word of a command: its parts in order."""

    @property
    def bare(self) -> str:
        """The text when nothing in it is quoted or expanded; reserved words are such."""
        return "".join(part[1] for part in self) if all(p[0] == "text" and not p[2] for p in self) else ""

    def add(self, text: str, quoted: bool = False) -> int:
        self.append(("text", text, quoted, None))
        return len(text)


class Redirect:
    __slots__ = ("body", "number", "operator", "target")

    def __init__(self, number: str, operator: str, target: Word) -> None:
        self.number, self.operator, self.target, self.body = number, operator, target, Word()


def parse(text: str) -> Node:
    return _Reader(text).program()


def parse_word(text: str) -> Word:
    """Text of a here-document or inside ${x:-...}: expansions, no splitting at blanks."""
    return _Reader(text).quoted_until("")


def decode_ansi(text: str) -> str:
    r"""The escapes of $'...', printf and echo -e: \n, \x41, \101."""

    def one(match: re.Match[str]) -> str:
        hexa, letter = match.groups()
        return (
            chr(int(hexa.strip("xuU"), 16 if hexa[0] in "xuU" else 8) % 0x110000)
            if hexa
            else _ESCAPES.get(letter, letter)
        )

    return LIKE.ansi_escape.sub(one, text) if "\\" in text else text


def closing(text: str, i: int, opening: str, shut: str, quotes: bool = False) -> int:
    """Index behind the bracket that closes the one before `i`."""
    depth, n = 1, len(text)
    while i < n and depth:
        sign = text[i]
        if sign == "\\":
            i += 1
        elif quotes and sign in "'\"":
            end = text.find(sign, i + 1)
            i = end if end > 0 else i
        else:
            depth += (sign == opening) - (sign == shut)
        i += 1
    return min(i, n)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\\\n", "") if "\\\n" in text and "<<" not in text else text
        self.i = self.depth = 0
        self.pending: list[tuple[Redirect, str, bool, bool]] = []  # here-documents of this line

    # -- signs

    @property
    def done(self) -> bool:
        return self.i >= len(self.text)

    def stretch(self, stops: str | frozenset[str], start: int = -1) -> str:
        """The text from here to the first of these signs."""
        i = start = self.i if start < 0 else start
        while i < len(self.text) and self.text[i] not in stops:
            i += 1
        return self.text[start:i]

    def blanks(self) -> None:
        text, n = self.text, len(self.text)
        while self.i < n:
            if text[self.i] in " \t\r":
                self.i += 1
            elif text.startswith("\\\n", self.i):
                self.i += 2
            elif text[self.i] == "#":
                self.i += len(self.stretch("\n"))
            else:
                return

    def operator(self) -> str:
        self.blanks()
        if self.done or self.text[self.i] not in "\n;&|()" or self.text.startswith("&>", self.i):
            return ""
        return next(one for one in _OPERATORS if self.text.startswith(one, self.i))

    def take(self, sign: str) -> None:
        self.i += len(sign)
        if sign != "\n":
            return
        for redirect, end, dash, quoted in self.pending:
            lines = []
            while not self.done:
                line = self.stretch("\n")
                self.i += len(line) + 1
                line = line.lstrip("\t") if dash else line
                if line == end:
                    break
                lines.append(line)
            body = "".join(line + "\n" for line in lines)
            redirect.body = Word([("text", body, True, None)]) if quoted else parse_word(body)
        self.pending.clear()

    def newlines(self) -> None:
        while (sign := self.operator()) in ("\n", ";"):
            self.take(sign)

    # -- words

    def word(self, argument: bool = False) -> Word:
        word, text = Word(), self.text
        while not self.done:
            sign = text[self.i]
            if sign not in _STOPS:
                self.i += word.add(self.stretch(_STOPS))
            elif sign in " \t\r\n;|&)":
                break
            elif sign in "<>":
                if not text.startswith("(", self.i + 1):
                    break
                self.substitution(word, 2, "proc", False)
            elif sign == "(" and not word and argument:
                self.substitution(word, 1, "sub", False)  # fish, nushell, PowerShell; bash has no such word
            elif sign == "(":
                if not word or text.startswith("()", self.i):
                    break
                end = closing(text, self.i + 1, "(", ")")  # a glob's: !(keep), *(om[1])
                self.i += word.add(text[self.i : end])
            elif sign == "{" and argument and not word and LIKE.script_block.match(text, self.i):
                end = closing(text, self.i + 1, "{", "}", quotes=True)
                self.i += word.add(text[self.i : end], quoted=True)
            else:
                self.piece(word, False)
        return word

    def quoted_until(self, end: str) -> Word:
        word = Word()
        while not self.done and (not end or self.text[self.i] != end):
            plain = self.stretch("$`\\" + end)
            if plain:
                self.i += word.add(plain, True)
            else:
                self.piece(word, True)
        return word

    def piece(self, word: Word, quoted: bool) -> None:
        """What starts with a quote, a dollar, a backtick or a backslash; anything else is itself."""
        text, sign = self.text, self.text[self.i]
        if sign == "\\":
            following = text[self.i + 1 : self.i + 2]
            keep = quoted and following not in '$`"\\\n'
            word.add(("\\" + following) if keep else following.replace("\n", ""), True)
            self.i += 2
        elif sign == "'" and not quoted:
            self.i += word.add(self.stretch("'", self.i + 1), True) + 2
        elif sign == '"' and not quoted:
            self.i += 1
            word.add("", True)
            word += self.quoted_until('"')
            self.i += 1
        elif sign == "`":
            end = self.unescaped("`", self.i + 1)
            inner = re.sub(r"\\([\\`$])", r"\1", text[self.i + 1 : end])
            word.append(("sub", inner, quoted, parse(inner)))
            self.i = end + 1
        elif sign == "$":
            self.dollar(word, quoted)
        else:
            self.i += word.add(sign, quoted)

    def unescaped(self, sign: str, i: int) -> int:
        """Where the sign stands next without a backslash."""
        while i < len(self.text) and self.text[i] != sign:
            i += 2 if self.text[i] == "\\" else 1
        return i

    def dollar(self, word: Word, quoted: bool) -> None:
        text, after = self.text, self.text[self.i + 1 : self.i + 2]
        end = self.i + 2
        if text.startswith("((", self.i + 1):
            end = closing(text, end, "(", ")")
            inner = text[self.i + 3 : end - 2]
            runs = ("sub", inner, quoted, parse(f"echo {inner}")) if "$(" in inner or "`" in inner else None
            word.append(runs or ("var", "((", quoted, None))
        elif after == "(":
            self.substitution(word, 2, "sub", quoted)
            end = self.i
        elif after == "{":
            end = closing(text, end, "{", "}")
            word.append(("var", text[self.i + 2 : end - 1], quoted, None))
        elif after.isidentifier():
            while end < len(text) and text[self.i + 1 : end + 1].isidentifier() and text[end].isascii():
                end += 1
            word.append(("var", text[self.i + 1 : end], quoted, None))
        elif after and after in "0123456789@*#?$!-":
            word.append(("var", after, quoted, None))
        elif after == "'" and not quoted:
            end = self.unescaped("'", end)
            word.add(decode_ansi(text[self.i + 2 : end]), True)
            end += 1
        elif after == '"' and not quoted:
            end -= 1
        else:
            end -= 1
            word.add("$", quoted)
        self.i = end

    def substitution(self, word: Word, skip: int, kind: str, quoted: bool) -> None:
        self.i += skip
        start = self.i
        node = self.commands_until()
        while not self.done and self.text[self.i] != ")":  # a stray `;;`
            self.i += 1
            node.nodes += self.commands_until().nodes
        word.append((kind, self.text[start : self.i], quoted, node))
        self.i += 1

    # -- commands

    def program(self) -> Node:
        top = Node("seq")
        while not self.done:
            top.nodes += self.commands_until().nodes
            if not self.done:  # a sign or word that ends something here unopened
                sign = self.operator()
                if sign:
                    self.take(sign)
                elif not self.word():
                    self.i += 1
        return top

    def commands_until(self, *ends: str) -> Node:
        """Commands up to a reserved word of `ends` (left for the caller), a closing sign, or the end."""
        listed, joint = Node("seq"), ""
        self.depth += 1
        if self.depth > DEPTH:
            self.i = len(self.text)
        while not self.done:
            self.newlines()
            sign = self.operator()
            if sign in (")", ";;", ";&", ";;&"):
                break
            if sign and sign != "(":
                self.take(sign)
                joint = sign if sign in ("&&", "||") else ""
                continue
            if self.done or self.at(*ends):
                break
            before = self.i
            listed.nodes.append(self.pipeline())
            listed.nodes[-1].joint, joint = joint, ""
            self.i += self.i == before
        self.depth -= 1
        return listed

    def at(self, *words: str) -> str:
        """The one of these reserved words that is next."""
        word = self.stretch(" \t\n;&|)<>") if words else ""
        return word if word in words else ""

    def keyword(self, *words: str) -> str:
        """Take one of these reserved words when it is next."""
        self.newlines()
        word = self.at(*words)
        self.i += len(word)
        return word

    def pipeline(self) -> Node:
        nodes = [self.command()]
        while (sign := self.operator()) in ("|", "|&"):
            self.take(sign)
            self.newlines()
            nodes.append(self.command())
        return nodes[0] if len(nodes) == 1 else Node("pipe", nodes)

    def command(self) -> Node:
        if self.operator() == "(":
            self.i += 1
            node = Node("subshell", [self.commands_until()])
            self.i += self.operator() == ")"
            return self.redirected(node)
        word = self.stretch(" \t\r\n;(")
        if word in _RESERVED:
            self.i += len(word)
            return self.redirected(self.compound(word))
        if self.text.startswith(("[[ ", "[[\n"), self.i) and (end := self.text.find("]]", self.i)) > 0:
            inner, self.i = self.text[self.i + 2 : end], end + 2
            return Node("seq", parse(f"[ {inner} ]").nodes if LIKE.plain_test.fullmatch(inner) else [])
        name = self.function_name()
        return self.redirected(Node("function", [self.function_body()], name)) if name else self.simple()

    def function_name(self) -> str:
        """Takes `name ()` or `function name`."""
        start = self.i
        named = self.text.startswith(("function ", "function\t"), self.i)
        self.i += len("function") * named
        self.blanks()
        name = self.stretch(_BLANKS + "(){};" + ("" if named else "$'\"=&|<>"))
        self.i += len(name)
        self.blanks()
        if self.text.startswith("(", self.i) and self.text[self.i + 1 :].lstrip().startswith(")"):
            self.i = closing(self.text, self.i + 1, "(", ")")
        elif not named:
            name = ""
        self.i = self.i if name else start
        return name

    def function_body(self) -> Node:
        self.newlines()
        if self.text[self.i : self.i + 1] in ("{", "("):
            return self.command()
        body = self.commands_until("end")  # fish
        self.keyword("end")
        return body

    def compound(self, word: str) -> Node:
        if word in ("!", "time", "coproc", "try", "finally"):
            self.blanks()
            self.i += 2 if word == "time" and self.text.startswith("-p", self.i) else 0
            return Node("seq", [self.command()], word)
        if word == "if":
            node = Node("branch", [self.commands_until("then", "else", "end", "fi")])
            while found := self.keyword("then", "elif", "else"):
                node.name = node.name or found
                node.nodes.append(self.commands_until("elif", "else", "fi", "end", "then"))
            self.keyword("fi", "end")
            return node
        if word in ("while", "until"):
            return Node("while", [self.commands_until("do", "end"), self.loop_body()], word)
        if word in _GROUPS:
            body = self.commands_until(*_GROUPS[word])
            self.keyword(*_GROUPS[word])
            return body
        return self.case_clause() if word == "case" else self.for_clause()

    def loop_body(self) -> Node:
        ender = {"do": "done", "{": "}", "": "end"}[self.keyword("do", "{")]  # fish and csh have only `end`
        body = self.commands_until(ender)
        self.keyword(ender)
        return body

    def for_clause(self) -> Node:
        node = Node("for")
        self.blanks()
        node.name = self.word().bare
        self.blanks()
        bracket = self.operator() == "("  # zsh, csh: for x (a b)
        if bracket or self.keyword("in"):
            self.i += bracket
            self.blanks()
            while self.operator() in ("", "(") and not self.done and not self.at("{"):
                before = self.i
                word = self.word(True)
                if self.i == before:
                    break
                node.words.append(word)
            self.i += bracket
        else:
            node.words = [Word([("var", "@", True, None)])]
        self.newlines()
        node.nodes = [self.loop_body()]
        return node

    def case_clause(self) -> Node:
        node = Node("branch", name="case")
        self.blanks()
        node.words = [self.word()]
        self.keyword("in")
        while not self.done and not self.keyword("esac"):
            end = self.text.find(")", self.i)
            if end < 0:
                break
            pattern, self.i = self.text[self.i : end].strip().lstrip("("), end + 1
            node.nodes.append(self.commands_until("esac"))
            node.nodes[-1].name = pattern
            sign = self.operator()
            node.name = "" if sign.endswith("&") else node.name  # the next arm runs, too
            if sign.startswith(";"):
                self.take(sign)
        return node

    def redirected(self, node: Node) -> Node:
        self.blanks()
        while self.redirect(node):
            self.blanks()
        return node

    def redirect(self, node: Node) -> bool:
        """Takes a redirection when one stands here: 2>file, {fd}<in, <<END."""
        text, i = self.text, self.i
        while text[i : i + 1].isdigit():
            i += 1
        operator = next((one for one in _REDIRECTS if text.startswith(one, i)), "")
        if not operator or (operator in "<>" and text.startswith("(", i + 1)):
            return False
        number, self.i = text[self.i : i], i + len(operator)
        self.blanks()
        start = self.i
        redirect = Redirect(number, operator.rstrip("!"), self.word())
        if operator in ("<<", "<<-"):
            quoted = any(part[2] for part in redirect.target)
            end_word = "".join(part[1] for part in redirect.target) or text[start : self.i]
            self.pending.append((redirect, end_word, operator == "<<-", quoted))
        node.redirects.append(redirect)
        return True

    def simple(self) -> Node:
        node = Node("simple")
        while not self.done:
            self.blanks()
            declares = not node.words or node.words[0].bare in DECLARES
            if self.redirect(node) or (declares and self.assignment(node)):
                continue
            if self.operator() not in (("", "(") if node.words else ("",)) or self.done:
                break
            before = self.i
            word = self.word(bool(node.words))
            if self.i == before:
                break
            node.words.append(word)
        return node

    def assignment(self, node: Node) -> bool:
        """Takes name=value, name+=value, name[i]=value, name=(list)."""
        text, name = self.text, self.stretch(_STOPS)
        i = self.i + len(name)
        if text.startswith("[", i):
            i = text.find("]", i) + 1
        operator = "+=" if name.endswith("+") or text.startswith("+", i) else "="
        name, i = name.removesuffix("+"), i + text.startswith("+", i)
        if not name.isidentifier() or not text.startswith("=", i) or text.startswith("==", i):
            return False
        self.i = i + 1
        if text.startswith("(", self.i):
            end = closing(text, self.i + 1, "(", ")", quotes=True)
            inside = parse("x " + text[self.i + 1 : end - 1].replace("\n", " "))
            node.assigns.append((name, "array" + operator, inside.nodes[0].words[1:]))
            self.i = end
        else:
            node.assigns.append((name, operator, [self.word()]))
        return True
