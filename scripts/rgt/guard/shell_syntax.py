"""Shell text -> a tree: words keep their quoting and expansions, so that data is not taken for a command.

    parse("cd runs && rm -rf $X")  ->  Node("seq", [Simple([cd, runs]), Simple([rm, -rf, $X])])

Total: whatever the text is, there is a tree. What does not parse as bash (fish's `end`, a stray `)`) is read as far as
it goes. No dataclasses: their import costs more than this module.
"""

from __future__ import annotations

import re

from rgt.guard.lazy_regex import Regex

DEPTH = 40  # of nested compound commands
_PLAIN = Regex(r"[^\s\\'\"$`;&|<>()#{}*?\[\]~!=,]+")
_NAME = Regex(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = Regex(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?=)")
_OPERATOR = Regex(r"\n|;;&|;;|;&|;|&&|\|\||\|&|\||&(?!>)|\(|\)")
_REDIRECT = Regex(r"(?:\{[A-Za-z_]\w*\}|\d*)(<<<|<<-?|<>|<&|>>|>\||>&|&>>|&>|<(?!\()|>(?!\())")
_RESERVED = Regex(r"(!|time|coproc|begin|\{|if|while|until|for|foreach|select|case)(?=[\s;(]|$)")
_WORD = Regex(r"[a-z]+|\}")
_FUNCTION = Regex(r"function\s+([^\s(){};]+)\s*(?:\(\s*\))?\s*|([^\s(){}$'\"=;&|<>]+)\s*\(\s*\)\s*")
_HERE = Regex(r"<<-?[ \t]*(['\"]?)([\w.-]+)\1")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\033", "f": "\f", "v": "\v", "\\": "\\"}
_ANSI = Regex(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.S)

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
    """kind: simple, seq, pipe, for, while, branch, function, subshell. Only `simple` has words."""

    __slots__ = ("assigns", "kind", "name", "nodes", "redirects", "text", "words")

    def __init__(self, kind: str, nodes: list[Node] | None = None) -> None:
        self.kind = kind
        self.nodes: list[Node] = nodes or []
        self.words: list[Word] = []
        self.assigns: list[tuple[str, str, list[Word]]] = []
        self.redirects: list[Redirect] = []
        self.name = ""
        self.text = ""  # the source, for a word about where a value came from


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

    return _ANSI.sub(one, text)


def matching(text: str, start: int, opening: str, closing: str) -> int:
    """Index behind the bracket that closes the one before `start`; quotes and escapes are skipped."""
    depth, i, n = 1, start, len(text)
    here: list[str] = []  # the ends of here-documents whose bodies begin at the next line
    while i < n:
        sign = text[i]
        if sign == "\\":
            i += 1
        elif sign == "<" and opening == "(" and (match := _HERE.match(text, i)) and text[i - 1] != "<":
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

    def blanks(self) -> None:
        text, n = self.text, len(self.text)
        while self.i < n:
            if text[self.i] in " \t\r":
                self.i += 1
            elif text.startswith("\\\n", self.i):
                self.i += 2
            elif text[self.i] == "#":
                end = text.find("\n", self.i)
                self.i = n if end < 0 else end
            else:
                return

    def operator(self) -> str:
        self.blanks()
        match = _OPERATOR.match(self.text, self.i)
        return match[0] if match else ""

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
            while self.i < len(self.text):
                stop = self.text.find("\n", self.i)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.i : stop]
                line = line.lstrip("\t") if dash else line
                self.i = stop + 1
                if line == end:
                    break
                lines.append(line)
            body = "".join(line + "\n" for line in lines)
            redirect.body = Word([("text", body, True)]) if quoted else parse_word(body)
        self.pending.clear()

    # -- words

    def word(self, argument: bool = False) -> Word:
        word, text, n = Word(), self.text, len(self.text)
        while self.i < n:
            sign = text[self.i]
            plain = _PLAIN.match(text, self.i)
            if plain:
                word.append(("text", plain[0], False))
                self.i = plain.end()
            elif sign in " \t\r\n;|&":
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
                end = matching(text, self.i + 1, "(", ")")  # a glob's: !(keep), *(om[1]); an array's x=(...)
                word.append(("text", text[self.i : end], False))
                self.i = end
            elif sign == ")":
                break
            else:
                self.piece(word, False)
        return word

    def until_end(self) -> Word:
        word, text, n = Word(), self.text, len(self.text)
        while self.i < n:
            stop = min((at for at in (text.find(s, self.i) for s in "$`\\") if at >= 0), default=n)
            if stop > self.i:
                word.append(("text", text[self.i : stop], True))
                self.i = stop
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
            end = text.find("'", self.i + 1)
            end = len(text) if end < 0 else end
            word.append(("text", text[self.i + 1 : end], True))
            self.i = end + 1
        elif sign == '"' and not quoted:
            self.i += 1
            self.double(word)
        elif sign == "`":
            end = self.i + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            word.append(("sub", re.sub(r"\\([\\`$])", r"\1", text[self.i + 1 : end]), quoted))
            self.i = end + 1
        elif sign == "$":
            self.dollar(word, quoted)
        else:
            word.append(("text", sign, quoted))
            self.i += 1

    def double(self, word: Word) -> None:
        word.append(("text", "", True))
        text, n = self.text, len(self.text)
        while self.i < n and text[self.i] != '"':
            if text[self.i] in "$`\\":
                self.piece(word, True)
                continue
            start = self.i
            while self.i < n and text[self.i] not in '"$`\\':
                self.i += 1
            word.append(("text", text[start : self.i], True))
        self.i += 1

    def dollar(self, word: Word, quoted: bool) -> None:
        text, after = self.text, self.text[self.i + 1 : self.i + 2]
        name = _NAME.match(text, self.i + 1)
        if after == "(":
            if text.startswith("((", self.i + 1):
                end = matching(text, self.i + 2, "(", ")")
                word.append(("var", "((", quoted))
                self.i = end
            else:
                self.substitution(word, 2, "sub", quoted)
        elif after == "{":
            end = matching(text, self.i + 2, "{", "}")
            word.append(("var", text[self.i + 2 : end - 1], quoted))
            self.i = end
        elif name:
            word.append(("var", name[0], quoted))
            self.i = name.end()
        elif after and after in "0123456789@*#?$!-":
            word.append(("var", after, quoted))
            self.i += 2
        elif after == "'" and not quoted:
            end = self.i + 2
            while end < len(text) and text[end] != "'":
                end += 2 if text[end] == "\\" else 1
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
        while self.i < len(self.text):
            top.nodes += self.list_until(set()).nodes
            if self.i < len(self.text):  # a sign or word that ends something here unopened
                sign = self.operator()
                if sign:
                    self.take(sign)
                elif not self.word():
                    self.i += 1
        return top

    def list_until(self, ends: set[str]) -> Node:
        """Commands up to a reserved word of `ends` (left for the caller), a closing sign, or the end."""
        found = Node("seq")
        self.depth += 1
        if self.depth > DEPTH:
            self.i = len(self.text)
        while self.i < len(self.text):
            self.newlines()
            sign = self.operator()
            if sign in (")", ";;", ";&", ";;&"):
                break
            if sign and sign != "(":
                self.take(sign)
                continue
            if self.i >= len(self.text) or self.at_end(ends):
                break
            before = self.i
            found.nodes.append(self.pipeline())
            if self.i == before:
                self.i += 1
        self.depth -= 1
        return found

    def at_end(self, ends: set[str]) -> bool:
        if not ends:
            return False
        match = _WORD.match(self.text, self.i)
        after = self.text[match.end() : match.end() + 1] if match else ""
        return bool(match) and match[0] in ends and (not after or after in " \t\n;&|)<>")  # type: ignore[index]

    def keyword(self, *words: str) -> str:
        """Take one of these reserved words when it is next."""
        self.newlines()
        for word in words:
            if self.at_end({word}):
                self.i += len(word)
                return word
        return ""

    def pipeline(self) -> Node:
        start = self.i
        nodes = [self.command()]
        while self.operator() in ("|", "|&"):
            self.take(self.operator())
            while self.operator() == "\n":
                self.take("\n")
            nodes.append(self.command())
        pipe = nodes[0] if len(nodes) == 1 else Node("pipe", nodes)
        pipe.text = pipe.text or self.text[start : self.i][:300]
        return pipe

    def command(self) -> Node:
        if self.operator() == "(":
            return self.round_bracket()
        start = self.i
        match = _RESERVED.match(self.text, self.i)
        if match:
            self.i = match.end()
            return self.redirected(self.compound(match[1]), start)
        if self.text.startswith(("[[ ", "[[\n"), self.i):
            end = self.text.find("]]", self.i)
            self.i = len(self.text) if end < 0 else end + 2
            return Node("seq")
        match = _FUNCTION.match(self.text, self.i)
        if match:
            self.i = match.end()
            node = Node("function", [self.function_body()])
            node.name = match[1] or match[2]
            return self.redirected(node, start)
        return self.simple()

    def function_body(self) -> Node:
        self.newlines()
        fish = self.text[self.i : self.i + 1] not in ("{", "(")
        if fish:
            body = self.list_until({"end"})
            self.keyword("end")
            return body
        return self.command()

    def round_bracket(self) -> Node:
        if self.text.startswith("((", self.i):
            end = matching(self.text, self.i + 1, "(", ")")
            if self.text[end - 2 : end] == "))":
                self.i = end
                return Node("seq")
        start = self.i
        self.i += 1
        node = Node("subshell", [self.list_until(set())])
        if self.operator() == ")":
            self.i += 1
        return self.redirected(node, start)

    def compound(self, word: str) -> Node:
        if word in ("!", "time", "coproc"):
            self.blanks()
            self.i += 2 if word == "time" and self.text.startswith("-p", self.i) else 0
            return Node("seq", [self.command()])
        if word in ("{", "begin"):
            end = {"}"} if word == "{" else {"end"}
            body = self.list_until(end)
            self.keyword(*end)
            return body
        if word == "if":
            return self.if_clause()
        if word in ("while", "until"):
            node = Node("while", [self.list_until({"do", "end"})])
            node.nodes.append(self.loop_body())
            return node
        return self.case_clause() if word == "case" else self.for_clause()

    def if_clause(self) -> Node:
        node = Node("branch", [self.list_until({"then", "else", "end", "fi"})])
        while self.keyword("then", "elif", "else"):
            node.nodes.append(self.list_until({"elif", "else", "fi", "end", "then"}))
        self.keyword("fi", "end")
        return node

    def loop_body(self) -> Node:
        if self.keyword("do"):
            body = self.list_until({"done"})
            self.keyword("done")
        elif self.keyword("{"):
            body = self.list_until({"}"})
            self.keyword("}")
        else:  # fish and csh
            body = self.list_until({"end"})
            self.keyword("end")
        return body

    def for_clause(self) -> Node:
        node = Node("for")
        self.blanks()
        if self.text.startswith("((", self.i):
            self.i = matching(self.text, self.i + 1, "(", ")")
        else:
            name = self.word()
            node.name = name.bare
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
        while self.operator() in ("", "(") and self.i < len(self.text):
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
        while self.i < len(self.text) and not self.keyword("esac"):
            end = self.text.find(")", self.i)
            if end < 0:
                break
            self.i = end + 1
            node.nodes.append(self.list_until({"esac"}))
            sign = self.operator()
            if sign.startswith(";"):
                self.take(sign)
        return node

    def redirected(self, node: Node, start: int) -> Node:
        self.blanks()
        while match := _REDIRECT.match(self.text, self.i):
            self.redirect(node, match)
            self.blanks()
        node.text = self.text[start : self.i][:300]
        return node

    def redirect(self, node: Node, match: re.Match[str]) -> None:
        operator = match[1]
        self.i = match.end()
        self.blanks()
        start = self.i
        target = self.word()
        redirect = Redirect(operator, target)
        if operator in ("<<", "<<-"):
            quoted = any(part[2] for part in target)
            end = "".join(part[1] for part in target) or self.text[start : self.i]
            self.pending.append((redirect, end, operator == "<<-", quoted))
        node.redirects.append(redirect)

    def simple(self) -> Node:
        node, start = Node("simple"), self.i
        while self.i < len(self.text):
            self.blanks()
            match = _REDIRECT.match(self.text, self.i)
            if match:
                self.redirect(node, match)
                continue
            if self.operator() not in (("", "(") if node.words else ("",)) or self.i >= len(self.text):
                break
            assignment = None if node.words else _ASSIGNMENT.match(self.text, self.i)
            if assignment:
                self.assignment(node, assignment)
                continue
            before = self.i
            word = self.word(bool(node.words))
            if self.i == before:
                break
            node.words.append(word)
        node.text = self.text[start : self.i][:300]
        return node

    def assignment(self, node: Node, match: re.Match[str]) -> None:
        self.i = match.end()
        values: list[Word] = []
        if self.text[self.i : self.i + 1] == "(":
            end = matching(self.text, self.i + 1, "(", ")")
            inside = parse(self.text[self.i + 1 : end - 1].replace("\n", " "))
            values = inside.nodes[0].words if inside.nodes else []
            self.i = end
            node.assigns.append((match[1], "array" + match[3], values))
        else:
            node.assigns.append((match[1], match[3], [self.word()]))
