"""Shell text -> a tree: words keep their quoting and expansions, so that data is not taken for a command.

    parse("cd runs && rm -rf $X")  ->  Node("seq", [Simple([cd, runs]), Simple([rm, -rf, $X])])

Total: whatever the text is, there is a tree. What does not parse as bash (fish's `end`, a stray `)`) is read as far as
it goes. Scanned by hand: a plain line must not pay for regular expressions, nor for dataclasses.
"""

from __future__ import annotations

from rgt.guard.lazy_regex import Regex, re

DEPTH = 40  # of nested compound commands
_BLANKS = " \t\r\n"
_STOPS = frozenset(_BLANKS + "\\'\"$`;&|<>()#{}*?[]~!=,")  # a plain stretch of a word ends at these
_OPERATORS = ("\n", ";;&", ";;", ";&", ";", "&&", "||", "|&", "|", "&", "(", ")")
_REDIRECTS = ("<<<", "<<-", "<<", "<>", "<&", ">>", ">|", ">&", "&>>", "&>", "<", ">")
_RESERVED = frozenset("! time coproc begin { if while until for foreach select case".split())
_ENDERS = {"{": "}", "begin": "end"}
_HERE = Regex(r"<<-?[ \t]*(['\"]?)([\w.-]+)\1")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\033", "f": "\f", "v": "\v", "\\": "\\"}
_ANSI = Regex(r"(?s)\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))")

Part = tuple[str, str, bool]  # kind (text, var, sub, proc), its text, quoted


class Word(list[Part]):
    """One word of a command: its parts in order."""

    @property
    def bare(self) -> str:
        """The text when nothing in it is quoted or expanded; reserved words are such."""
        return "".join(part[1] for part in self) if all(p[0] == "text" and not p[2] for p in self) else ""


class Redirect:
    __slots__ = ("body", "operator", "target")

    def __init__(self, operator: str, target: Word, body: Word | None = None) -> None:
        self.operator, self.target, self.body = operator, target, body


class Node:
    """kind: simple, seq, pipe, for, while, branch, function, subshell. Only `simple` and `for` have words."""

    __slots__ = ("assigns", "kind", "name", "nodes", "redirects", "words")

    def __init__(self, kind: str, nodes: list[Node] | None = None, name: str = "") -> None:
        self.kind, self.name = kind, name
        self.nodes: list[Node] = nodes or []
        self.words: list[Word] = []
        self.assigns: list[tuple[str, str, list[Word]]] = []
        self.redirects: list[Redirect] = []


def parse(text: str) -> Node:
    return _Parser(text).program()


def parse_word(text: str) -> Word:
    """Text of a here-document or inside ${x:-...}: expansions, no splitting at blanks."""
    return _Parser(text).until_end()


def decode_ansi(text: str) -> str:
    r"""The escapes of $'...', printf and echo -e: \n, \x41, \101."""

    def one(match: re.Match[str]) -> str:
        hexa, short, long, octal, letter = match.groups()
        number = int(hexa or short or long, 16) if hexa or short or long else int(octal, 8) if octal else -1
        if number >= 0:
            return chr(number) if number < 0x110000 else ""
        return _ESCAPES.get(letter, letter if letter in "'\"?" else "\\" + letter)

    return _ANSI.sub(one, text) if "\\" in text else text


def matching(text: str, start: int, opening: str, closing: str) -> int:
    """Index behind the bracket that closes the one before `start`; quotes and escapes are skipped."""
    depth, i, n = 1, start, len(text)
    here: list[str] = []  # the ends of here-documents whose bodies begin at the next line
    while i < n:
        sign = text[i]
        if sign == "\\":
            i += 1
        elif sign == "<" and opening == "(" and text[i - 1] != "<" and (match := _HERE.match(text, i)):
            here.append(match[2])
            i = match.end() - 1
        elif sign == "\n" and here:
            i = _here_end(text, i, here)
        elif sign == "#" and opening == "(" and text[i - 1] in " \t\n;":
            i = (text.find("\n", i) if "\n" in text[i:] else n) - 1
        elif sign == "'" and opening != "{":
            i = text.find("'", i + 1)
            if i < 0:
                return n
        elif sign == '"' and opening == "(":
            i = _double_end(text, i + 1)
            continue
        elif sign == opening:
            depth += 1
        elif sign == closing:
            depth -= 1
            if not depth:
                return i + 1
        i += 1
    return n


def _here_end(text: str, i: int, ends: list[str]) -> int:
    """Index of the last sign before what follows the bodies that start at the line break `i`."""
    while ends:
        match = re.compile(rf"\n\t*{re.escape(ends.pop(0))}(?=[\n)]|$)").search(text, i)
        if not match:
            return len(text)
        i = match.end()
    return i - 1


def _double_end(text: str, i: int) -> int:
    while i < len(text) and text[i] != '"':
        if text[i] == "\\":
            i += 1
        elif text.startswith("$(", i):
            i = matching(text, i + 2, "(", ")") - 1
        i += 1
    return i + 1


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\\\n", "") if "\\\n" in text and "<<" not in text else text
        self.i = 0
        self.depth = 0
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
        if sign == "\n":
            self.here_documents()

    def newlines(self) -> None:
        while (sign := self.operator()) in ("\n", ";"):
            self.take(sign)

    def here_documents(self) -> None:
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
            redirect.body = Word([("text", body, True)]) if quoted else parse_word(body)
        self.pending.clear()

    # -- words

    def word(self, argument: bool = False) -> Word:
        word, text = Word(), self.text
        while not self.done:
            sign = text[self.i]
            if sign not in _STOPS:
                word.append(("text", self.stretch(_STOPS), False))
                self.i += len(word[-1][1])
            elif sign in " \t\r\n;|&)":
                break
            elif sign in "<>":
                if not text.startswith("(", self.i + 1):
                    break
                self.substitution(word, 2, "proc", False)
            elif sign == "(" and not word and argument:
                self.substitution(word, 1, "sub", False)  # fish; bash has no such word
            elif sign == "(":
                if not word or text.startswith("()", self.i):
                    break
                end = matching(text, self.i + 1, "(", ")")  # a glob's: !(keep), *(om[1])
                word.append(("text", text[self.i : end], False))
                self.i = end
            else:
                self.piece(word, False)
        return word

    def until_end(self) -> Word:
        word = Word()
        while not self.done:
            plain = self.stretch("$`\\")
            self.i += len(plain)
            if plain:
                word.append(("text", plain, True))
            else:
                self.piece(word, True)
        return word

    def piece(self, word: Word, quoted: bool) -> None:
        """What starts with a quote, a dollar, a backtick or a backslash; anything else is itself."""
        text, sign = self.text, self.text[self.i]
        if sign == "\\":
            following = text[self.i + 1 : self.i + 2]
            keep = quoted and following not in '$`"\\\n'
            word.append(("text", ("\\" + following) if keep else following.replace("\n", ""), True))
            self.i += 2
        elif sign == "'" and not quoted:
            word.append(("text", self.stretch("'", self.i + 1), True))
            self.i += len(word[-1][1]) + 2
        elif sign == '"' and not quoted:
            self.i += 1
            word.append(("text", "", True))
            while not self.done and text[self.i] != '"':
                plain = self.stretch('"$`\\')
                self.i += len(plain)
                if plain:
                    word.append(("text", plain, True))
                else:
                    self.piece(word, True)
            self.i += 1
        elif sign == "`":
            end = self.closing("`", self.i + 1)
            word.append(("sub", re.sub(r"\\([\\`$])", r"\1", text[self.i + 1 : end]), quoted))
            self.i = end + 1
        elif sign == "$":
            self.dollar(word, quoted)
        else:
            word.append(("text", sign, quoted))
            self.i += 1

    def closing(self, sign: str, i: int) -> int:
        """Where the sign stands next without a backslash."""
        while i < len(self.text) and self.text[i] != sign:
            i += 2 if self.text[i] == "\\" else 1
        return i

    def dollar(self, word: Word, quoted: bool) -> None:
        text, after = self.text, self.text[self.i + 1 : self.i + 2]
        if text.startswith("((", self.i + 1):
            end = matching(text, self.i + 2, "(", ")")
            inner = text[self.i + 3 : end - 2]
            word.append(("sub", f"echo {inner}", quoted) if "$(" in inner or "`" in inner else ("var", "((", quoted))
            self.i = end
        elif after == "(":
            self.substitution(word, 2, "sub", quoted)
        elif after == "{":
            end = matching(text, self.i + 2, "{", "}")
            word.append(("var", text[self.i + 2 : end - 1], quoted))
            self.i = end
        elif after.isidentifier():
            end = self.i + 2
            while end < len(text) and text[self.i + 1 : end + 1].isidentifier() and text[end].isascii():
                end += 1
            word.append(("var", text[self.i + 1 : end], quoted))
            self.i = end
        elif after and after in "0123456789@*#?$!-":
            word.append(("var", after, quoted))
            self.i += 2
        elif after == "'" and not quoted:
            end = self.closing("'", self.i + 2)
            word.append(("text", decode_ansi(text[self.i + 2 : end]), True))
            self.i = end + 1
        elif after == '"' and not quoted:
            self.i += 1
        else:
            word.append(("text", "$", quoted))
            self.i += 1

    def substitution(self, word: Word, skip: int, kind: str, quoted: bool) -> None:
        end = matching(self.text, self.i + skip, "(", ")")
        word.append((kind, self.text[self.i + skip : end - 1], quoted))
        self.i = end

    # -- commands

    def program(self) -> Node:
        top = Node("seq")
        while not self.done:
            top.nodes += self.list_until().nodes
            if not self.done:  # a sign or word that ends something here unopened
                sign = self.operator()
                if sign:
                    self.take(sign)
                elif not self.word():
                    self.i += 1
        return top

    def list_until(self, *ends: str) -> Node:
        """Commands up to a reserved word of `ends` (left for the caller), a closing sign, or the end."""
        listed = Node("seq")
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
                continue
            if self.done or self.at(*ends):
                break
            before = self.i
            listed.nodes.append(self.pipeline())
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
            while self.operator() == "\n":
                self.take("\n")
            nodes.append(self.command())
        return nodes[0] if len(nodes) == 1 else Node("pipe", nodes)

    def command(self) -> Node:
        if self.operator() == "(":
            return self.round_bracket()
        word = self.stretch(" \t\r\n;(")
        if word in _RESERVED:
            self.i += len(word)
            return self.redirected(self.compound(word))
        if self.text.startswith(("[[ ", "[[\n"), self.i):
            end = self.text.find("]]", self.i)
            self.i = len(self.text) if end < 0 else end + 2
            return Node("seq")
        name = self.function_name()
        return self.redirected(Node("function", [self.function_body()], name)) if name else self.simple()

    def function_name(self) -> str:
        """Takes `name ()` or `function name`."""
        start = self.i
        named = self.text.startswith("function", self.i) and self.text[self.i + 8 : self.i + 9] in (" ", "\t")
        self.i += 8 if named else 0
        self.blanks()
        name = self.stretch(_BLANKS + "(){};" + ("" if named else "$'\"=&|<>"))
        self.i += len(name)
        self.blanks()
        if self.text.startswith("(", self.i) and self.text[self.i + 1 :].lstrip().startswith(")"):
            self.i = self.text.index(")", self.i) + 1
            named = True
        if not named or not name:
            self.i = start
            return ""
        return name

    def function_body(self) -> Node:
        self.newlines()
        if self.text[self.i : self.i + 1] in ("{", "("):
            return self.command()
        body = self.list_until("end")  # fish
        self.keyword("end")
        return body

    def round_bracket(self) -> Node:
        if self.text.startswith("((", self.i):
            end = matching(self.text, self.i + 1, "(", ")")
            if self.text[end - 2 : end] == "))":
                self.i = end
                return Node("seq")
        self.i += 1
        node = Node("subshell", [self.list_until()])
        self.i += self.operator() == ")"
        return self.redirected(node)

    def compound(self, word: str) -> Node:
        if word in ("!", "time", "coproc"):
            self.blanks()
            self.i += 2 if word == "time" and self.text.startswith("-p", self.i) else 0
            return Node("seq", [self.command()])
        if word in _ENDERS:
            body = self.list_until(_ENDERS[word])
            self.keyword(_ENDERS[word])
            return body
        if word == "if":
            node = Node("branch", [self.list_until("then", "else", "end", "fi")])
            while self.keyword("then", "elif", "else"):
                node.nodes.append(self.list_until("elif", "else", "fi", "end", "then"))
            self.keyword("fi", "end")
            return node
        if word in ("while", "until"):
            return Node("while", [self.list_until("do", "end"), self.loop_body()])
        return self.case_clause() if word == "case" else self.for_clause()

    def loop_body(self) -> Node:
        ender = {"do": "done", "{": "}", "": "end"}[self.keyword("do", "{")]  # fish and csh have only `end`
        body = self.list_until(ender)
        self.keyword(ender)
        return body

    def for_clause(self) -> Node:
        node = Node("for")
        self.blanks()
        if self.text.startswith("((", self.i):
            self.i = matching(self.text, self.i + 1, "(", ")")
        else:
            node.name = self.word().bare
            self.blanks()
            if self.keyword("in"):
                self.for_words(node)
            elif self.operator() == "(":  # zsh, csh: for x (a b)
                self.take("(")
                self.for_words(node)
                self.take(self.operator())
            else:
                node.words = [Word([("var", "@", True)])]
        self.newlines()
        node.nodes = [self.loop_body()]
        return node

    def for_words(self, node: Node) -> None:
        while self.operator() in ("", "(") and not self.done:
            before = self.i
            word = self.word(True)
            if self.i == before:
                break
            node.words.append(word)

    def case_clause(self) -> Node:
        node = Node("branch")
        self.blanks()
        self.word()
        self.keyword("in")
        while not self.done and not self.keyword("esac"):
            end = self.text.find(")", self.i)
            if end < 0:
                break
            self.i = end + 1
            node.nodes.append(self.list_until("esac"))
            sign = self.operator()
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
        if text.startswith("{", i) and text[i + 1 : (end := text.find("}", i))].isidentifier():
            i = end + 1
        operator = next((one for one in _REDIRECTS if text.startswith(one, i)), "")
        if not operator or (operator in "<>" and text.startswith("(", i + 1)):
            return False
        self.i = i + len(operator)
        self.blanks()
        start = self.i
        redirect = Redirect(operator, self.word())
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
            if self.redirect(node) or (not node.words and self.assignment(node)):
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
        name, text = self.stretch(_STOPS), self.text
        i = self.i + len(name)
        if text.startswith("[", i):
            i = text.find("]", i) + 1
        name, plus = name.removesuffix("+"), name.endswith("+") or text.startswith("+", i)
        i += text.startswith("+", i)
        if not name.isidentifier() or not text.startswith("=", i):
            return False
        self.i = i + 1
        operator = "+=" if plus else "="
        if text.startswith("(", self.i):
            end = matching(text, self.i + 1, "(", ")")
            inside = parse(text[self.i + 1 : end - 1].replace("\n", " "))
            node.assigns.append((name, "array" + operator, inside.nodes[0].words if inside.nodes else []))
            self.i = end
        else:
            node.assigns.append((name, operator, [self.word()]))
        return True
