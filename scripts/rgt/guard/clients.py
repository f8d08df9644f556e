"""Does a call end, stop or delete what is rented, shared or a result? One rule for command lines, SDKs and HTTP paths.

    ended_by(["crusoe", "compute", "vms", "delete", "a"], known=False)  ->  3, the verb's place

A verb that ends counts where a client is known (the table has it); anywhere else only together with a thing that is
rented or holds results, or as the first word of a program that nobody knows. Things that are deleted without loss (a
key, a tag, an image) do not count. What follows a verb that only looks or adds (list, create, run) is that verb's own
business. What verbs alone do not say stands in the table of the profiles and in other_clients.json.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import has_flag, operands, option, values_of
from rgt.guard.precious_paths import is_result_file
from rgt.guard.quick_start import LIKE, WORDS, re
from rgt.guard.shell_walk import Walker, mounts
from rgt.guard.word_expansion import State

ENDS, LOOKS, THINGS = WORDS["ends"], WORDS["looks"], WORDS["things"]
# of these alone one cannot tell whose they are: a web framework's server, a browser's session
VAGUE, LIGHT = WORDS["vague"], WORDS["light"]
_SURELY_LIGHT = LIGHT - {"account", "user", "log", "metric", "item", "record", "backend", "package"}
_DELETED = THINGS | {"file", "weight", "collection", "index"}
_SHARED = (".googleapis.com", ".azure.com", ".aliyuncs.com", ".tencentcloudapi.com", ".amazonaws.com")


# -- verbs and things


def parts(text: str) -> list[str]:
    """terminate-instances, TerminateInstances, terminate_instances -> [terminate, instance]"""
    found: list[str] = []
    for word in map(str.lower, LIKE.name_parts.findall(text)):
        grown = None if word in ENDS else LIKE.grown_verb.fullmatch(word)
        known = grown and (grown[1] or grown[3]) and grown[3].removesuffix("s") in THINGS | {"", "all", "file", "dir"}
        found += [part for part in grown.groups() if part] if grown and known else [word]
    return [one[:-1] if one.endswith("s") and one[:-1] in THINGS | LIGHT else one for one in found]


def about(words: list[str], known: bool) -> bool:
    """Is what the verb is about worth something? Of a client that is not known: only what is surely rented."""
    things, light = THINGS.intersection(words), LIGHT.intersection(words)
    if known:
        return bool(things - VAGUE) or not light
    return bool(things - VAGUE) or (bool(things) and not light and len(things) > 1)


def is_dry(words: list[str]) -> bool:
    """Only shows what it would do, or its help."""
    for i, word in enumerate(words[1:], 1):
        if LIKE.dry_run.fullmatch(word):
            return "".join(words[i + 1 : i + 2]).lower() not in ("none", "false", "0")
        name = word.partition("=")[0]
        if name in WORDS["help options"] or (name == "help" and i < 4):
            return True
    return words[-1] in ("-h", "-V", "help") or (words[0] in WORDS["dry -n"] and has_flag(words[1:], "-n"))


def shows_only(script: str, arguments: list[str]) -> bool:
    """The line asks for a dry run, and the script names that option outside of its comments."""
    given = [word.strip("-").partition("=")[0] for word in arguments if LIKE.dry_run.fullmatch(word)]
    asked = [one.replace("-", "[-_]?") for one in given]
    asked += [r"-n\b[^#\n]*(?:dry|preview|show|print)"] if "-n" in arguments else []
    return any(re.search(rf"(?mi)^[^#\n]*{one}", script) for one in asked)


def ended_by(words: list[str], known: bool) -> int:
    """The place of the verb that ends something, 0 for the program's own name; -1 when there is none."""
    before: list[str] = []
    own = parts(words[0])
    if len(own) > 1 and not ENDS.isdisjoint(own) and about(own, known):  # vm-delete, destroy_pod, Remove-AzVM
        return 0
    for i, word in enumerate(words[1:14], 1):
        name, equals, value = word.partition("=")
        last = words[i - 1] if words[i - 1].startswith("-") and "=" not in words[i - 1] else ""
        sets = (equals and LIKE.sets_state.fullmatch(name)) or (last and LIKE.sets_state.fullmatch(last))
        told = bool(sets) and (known or about([*before, *own], False))
        power = LIKE.power_option.fullmatch(f"{last}={word}" if last else word)  # of any fencing agent
        # --status STOP_REQUESTED; a node that is drained finishes its jobs
        if power or (told and not (ENDS - {"drain"}).isdisjoint(parts(value or word))):
            return i
        if word.startswith("-"):
            flag = word.lstrip("-")  # yarn app -kill, uberftp -rm, megacli -CfgLdDel
            grown = known and flag[:1].isupper() and not ENDS.isdisjoint(parts(flag)[-1:])
            policy = words[i + 1 : i + 2] and words[i + 1] in WORDS["restart policies"]  # --restart unless-stopped
            ends = flag in ENDS and (len(word) > 3 or flag == "rm") and not policy
            if (grown or ends) and (known or about(before, False)):
                return i
            continue
        if last and last not in WORDS["boolean options"] and not (len(last) == 2 and last[1] in "yfqvad"):
            continue
        if not LIKE.plain_word.fullmatch(word):
            continue
        named = parts(word.partition("/")[0])
        following = words[i + 1].replace(",", "-") if i + 1 < len(words) else ""  # delete cm,secret
        verb = word.rpartition(":")[2]  # of heroku's ps:stop the last part is the verb
        looks = word in LOOKS or re.split("[-_]", verb)[0].lower() in LOOKS or bool(LIKE.views.match(verb))
        looks = looks or (len(named) > 1 and named[1] in WORDS["of a noun"])  # snapshot-create-as
        looks = looks and not (known and i == 1 and "-" in following and following.split("-")[0] in ENDS)  # aws backup
        named_so = word in LOOKS - WORDS["executes"] and THINGS.issuperset(parts(following))  # isi sync jobs cancel
        if looks and following not in ENDS and not (named_so and "".join(words[i + 2 : i + 3]) in ENDS):
            return -1  # `mlflow run delete`: a noun
        ends = not ENDS.isdisjoint((*named[:2], *named[-1:]))  # delete-pod, BatchDeletePods, pod-delete
        noun = ([one for one in named if one not in ENDS] or before)[-1:]  # delete-bucket-policy, images delete
        if ends and (following in WORDS["of a noun"] or (noun and noun[0] in _SURELY_LIGHT)):  # gh release create
            return -1
        if ends and (word.lower() in ENDS or len(named) > 1):
            after = parts(following) if LIKE.plain_word.fullmatch(following) else []
            plain = after if LIGHT.issuperset(after) or THINGS.intersection(after) else []  # or it is a name
            light = LIGHT.intersection((*before, *parts(following)))
            strong = len(before) < 2 and word in WORDS["strong"] and following and not light  # nobody knows the client
            machine = before[-1:] in (["server"], ["device"]) and word not in ("restart", "reset", "release", "clear")
            strong = strong or (machine and following and not light)  # gscloud server rm ID
            return i if strong or about([*before, *named, *plain], known) else -1
        before += [one for one in named if one != "api"]
    return -1


def empties(words: list[str]) -> bool:
    """Scales to nothing: --replicas 0, --size=0, {"replicas": 0}, {"suspend": true}."""
    for i, word in enumerate(words[1:], 1):
        if word in ("create", "run", "launch", "ssh", "exec", "template", "lint", "diff", "plan", "validate", "get"):
            return False
        text = f"{word}=0" if words[i + 1 : i + 2] == ["0"] and word.startswith("-") else word
        low = "min" in text.lower() and "desired" not in text.lower()
        scaled = any(one.rpartition(":")[2] == "scale" for one in words[1:4]) and re.search(r"(?:^|=)0$", word)
        if scaled or (LIKE.to_zero.search(text) and not low) or LIKE.state_set.search(word):
            return True
    return False


def is_ending_call(name: str, known: bool) -> bool:
    """ec2.instances.terminate, delete_namespaced_job, TerminateInstancesCommand: by the last name, then the rest."""
    chain, _, last = name.replace("()", "").rpartition(".")
    named = parts(last)
    ends = named and (named[0] in ENDS or (len(named) > 1 and not ENDS.isdisjoint((*named[:2], *named[-1:]))))
    ends = ends or (not WORDS["strong"].isdisjoint(named) and named[0] not in LOOKS - {"run"})  # run_service_delete_run
    of = parts(chain.rpartition(".")[2] if known else chain)  # images.prune
    return bool(ends) and about([*named, *(one for one in of if one != "api")], known)


# -- command lines


def judge(guard: Walker, words: list[str], state: State, known: bool, generic: bool, stdin: str) -> None:
    """By the rows of the table, then by any verb that ends. `generic`: no function judges this program already."""
    name, told = words[0], " ".join(words[:6])
    judged = (generic and storage(guard, words, state, stdin)) or (known and made_here(words, state))
    if judged or raw_request(guard, words):
        return

    def ends(box: str, profile: str = "") -> None:
        """`profile` when its `down` would do it: not for what only belongs to a machine, such as a volume."""
        covered = profile if profile in guard.table["downs"] and not LIKE.beside_machine.search(told) else ""
        guard.act("end", f"`{told}` ends, stops or deletes what is rented or shared", words, box, covered, box)

    if name in ("terraform", "tofu") and applies_end(words, state):
        ends("")
    signal = (option(words, "-s", "--signal") or "").removeprefix("SIG")
    for profile, pattern in guard.table["commands"].get(name, []):
        rest = matched(pattern.lstrip("!").split(), words[1:])
        if rest is not None:
            if not pattern.startswith("!") and signal not in ("USR1", "USR2", "CONT"):
                ends("".join(rest[:1]), profile)
            return
    if generic:
        writes(guard, words, state)
    if not generic or name in WORDS["tools"]:
        return
    at, line = ended_by(words, known), " ".join(words)
    expires = LIKE.expires.search(told) and re.search(r"(?i)expir|delete|\.json|\.xml|days", line)
    if at >= 0 or (known and (empties(words) or (expires and not {"get", "ls", "list"} & set(words)))):
        ends(next((word for word in words[at + 1 :] if not word.startswith("-")), "") if at >= 0 else "")


def applies_end(words: list[str], state: State) -> bool:
    """terraform plan -destroy -out=FILE, then apply FILE."""
    plans = [word.partition("=")[2] for word in words if word.startswith("-out=") and "-destroy" in words]
    state.files.update(dict.fromkeys(map(state.path, plans), "destroy"))
    return "apply" in words and any(state.files.get(state.path(word)) == "destroy" for word in words[1:])


def writes(guard: Walker, words: list[str], state: State) -> None:
    """A file that any program is told to write: -o FILE, download NAME --local-dir FOLDER; a disk: --rw=write."""
    for word in words[1:]:
        written = re.match(r"-*(?:of|out\w*|dest\w*|target)=", word) or LIKE.raw_write.search(" ".join(words))
        for path in re.split("[:,]", word.rpartition("=")[2]) if "/dev/" in word and written else []:
            guard.overwrite(path if LIKE.device.match(path) else "/dev/null", state, words)
    renames = words[0] == "aria2c" and not has_flag(words, "--allow-overwrite")  # x.1.pt, when x.pt is there
    if (target := option(words[1:], "-o", "-O", "--output", "--out", "--outfile")) and not renames:
        into = option(words[1:], "--dir", "--output-dir", "--outdir", *["-d"] * (words[0] == "aria2c")) or ""
        guard.overwrite(os.path.join(into, target), state, words)
    given = operands(words[1:], "-c -n --container-name --name --bucket --key --account-name")
    verb = next((i for i, word in enumerate(given[:4]) if not WORDS["brings"].isdisjoint(parts(word))), 9)
    folder = option(words[1:], "--local-dir", "--output-dir") or ""
    brought = [os.path.join(folder, name) for name in given[verb + 1 :]] if folder else given[verb + 2 :][-1:]
    brought += given[verb + 1 :][-1:] if "--key" in words else []
    for name in values_of(words, "-p", "--pattern") or ["*"] if "--clobber" in words else []:  # gh release download
        brought += guard.glob(os.path.join(option(words, "-D", "--dir") or ".", name), state)
    for path in brought + values_of(words, "-f", "--file") * (verb < 9):
        guard.overwrite(path, state, words)


def raw_request(guard: Walker, words: list[str]) -> bool:
    """az rest, gh api, oci raw-request, databricks api post: a client as the way to its platform's HTTP paths."""
    dotted = re.fullmatch(r"\w+(?:\.\w+)+", "".join(words[2:3]))  # openai api fine_tuning.jobs.cancel
    if not words[1:2] or words[1] not in ("rest", "api", "raw-request") or dotted:
        return False
    paths = operands(words[2:], "--method -X -m --http-method --body -b -f -F -H --url --uri --target-uri")
    told = option(words, "--method", "-X", "-m", "--http-method") or (paths[0] if paths else "get")
    urls = [*values_of(words, "--url", "--uri", "-u", "--target-uri"), *(one for one in paths if "/" in one)]
    body = " ".join(values_of(words, "--body", "-b", "-f", "-F", "--json", "--request-body", "--raw-field"))
    for url in urls[:1] if told.upper() in ("DELETE", "POST", "PUT", "PATCH") else []:
        request(guard, told.upper(), url if "://" in url else f"https://{words[0]}/{url.lstrip('/')}", body, words)
    return True


def matched(pattern: list[str], words: list[str]) -> list[str] | None:
    """The operands behind a client's verb, when these words are that verb; options with values may stand between."""
    verbs = [one.split("|") for one in pattern if not one.startswith("-")]
    flags = [one.split("|") for one in pattern if one.startswith("-")]
    # --mode=Complete, in two words
    valued = [one[0].lower().partition("=") for one in flags if not has_flag(words, *one)]
    given = [(option([word.lower() for word in words], name) or "", value) for name, _, value in valued]
    if any(not value or one != value for one, value in given):
        return None
    for i, word in enumerate(words):
        if not verbs:
            return [one for one in words[i:] if not one.startswith("-")]
        if word in verbs[0]:
            verbs.pop(0)
        elif not word.startswith("-") and not (i and words[i - 1].startswith("-") and "=" not in words[i - 1]):
            return None
    return None if verbs else []


def made_here(words: list[str], state: State) -> bool:
    """Ends only what the same line created; a line that creates is remembered."""
    verbs = [i for i, word in enumerate(words[:4]) if word in ("run", "create", "launch", "start")]
    named = values_of(words, "--name", "--profile")
    if "compose" in words[0] or words[1:2] == ["compose"]:
        return False
    if verbs:
        rest = operands(words[verbs[0] + 1 :], "--image --restart")
        names = named or (rest[:1] if words[verbs[0]] == "run" else rest[:2][-1:])
        state.made.update(dict.fromkeys(names, mounts(words, state)))
        return False
    if has_flag(words, "--all", "-l", "--selector", "--filter"):
        return False
    jobs = words[0] in ("scancel", "qdel", "bkill", "oardel")
    asked = [word for word in words[1 if jobs else 2 :] if word[:1] != "-" and word not in ENDS]
    asked = asked[1:] if asked[1:] and THINGS.issuperset(parts(asked[0])) else asked
    asked = named or [one if "\ue001" in one else one.partition("/")[2] or one for one in asked]
    return bool(asked) and all(one in state.made or LIKE.made_id.match(one) for one in asked)


def storage(guard: Walker, words: list[str], state: State, stdin: str) -> bool:
    """rclone, aws s3, gsutil, hf: what is in buckets is judged by name. Whether these words are about a bucket."""
    if words[1:2] in (["dfs"], ["fs"]) and len(words) > 2:  # hdfs dfs -rm
        words = [words[0], words[2].lstrip("-"), *words[3:]]
    words = [w for i, w in enumerate(words) if not (re.fullmatch(r"\d+[a-zA-Z]?", w) and words[i - 1][:2] == "--")]
    valued = "--profile --region --project --endpoint-url -o -h -u --exclude --include --zone --container -c"
    rest = operands(words[1:], "" if words[0] in ("hdfs", "hadoop") else valued)
    rest += stdin.split() if has_flag(words[1:], "-I", "--read-paths-from-stdin") else []
    places = [word for word in rest if LIKE.place.match(word)]
    keeps = has_flag(words[1:], "-n", "--no-clobber", "--no-overwrite", "--ignore-existing")
    copies = WORDS["copies"].intersection(part for word in words[1 : 1 if keeps else 5] for part in parts(word))
    named, body = option(words, "--key", "-n", "--name", "--blob-name"), option(words, "--body", "-f", "--file")
    if copies and ((named and body) or (rest[1:] and ({*rest[-2:]} & {*places} or words[0] in WORDS["buckets"]))):
        source = body or ("-" if copies & {"rcat", "pipe"} else rest[-2])
        spoil(guard, source, named if named and body else rest[-1], state, stdin, words)
    if words[0] in WORDS["buckets"]:
        noun = rest[1:] and parts(rest[0])[-1:] in (["bucket"], ["file"])  # b2 bucket delete NAME
        places = places if words[0] == "rclone" and places else rest[2 if noun else 1 :]
    elif not any("://" in place for place in places) or words[0] in WORDS["no buckets"]:
        return False
    verbs = {part for word in words[1:6] if word not in places[:1] for part in parts(word)}
    if has_flag(words[1:], "-n"):
        return True
    there, sources = state.elsewhere(), places[:-1] or places
    there.cwd = ""
    wanted = [f"/{one.lstrip('/')}" for one in values_of(words, "--include")] if words[0] == "rclone" else []
    bare = [(one if "://" in one else one.partition(":")[2] or one) + end for one in places for end in wanted or [""]]
    verbs &= WORDS["moves"] | WORDS["empties"] | {"rb", "purge", "bucket", "repo"} | WORDS["mirrors"]
    asks = [word for word in words if re.match(r"--(?:del|remove)|-d$", word) and not word.endswith("=false")]
    deletes = asks or words[0] in ("rclone", "s5cmd")
    if verbs & {"rb", "purge"} or (verbs & {"bucket", "repo"} and "delete" in verbs):
        guard.act("path", f"{words[0]} removes {' '.join(places)}", words, " ".join(places))
    elif verbs & WORDS["empties"]:
        guard.lose(bare, there, words, "removes")
        every = has_flag(words[1:], "-r", "-R", "--recursive") or any(place.endswith("*") for place in bare)
        large = [place for place in bare if place.rstrip("/*").count("/") <= 3 and not LIKE.scratch_part.search(place)]
        if every and large:
            guard.act("path", f"empties {bare[-1]}", words, bare[-1])
    elif verbs & WORDS["mirrors"] and deletes and places:
        guard.lose_place(rest[-1], there if "://" in rest[-1] else state, words, "deletes in")
    elif verbs & WORDS["moves"]:
        for place in [one for one in rest[:-1] if one in sources or os.path.exists(state.path(one))]:
            guard.lose_place(place, there if "://" in place else state, words, "moves away")
    return bool(verbs - {"bucket", "repo"})


def spoil(guard: Walker, source: str, target: str, state: State, stdin: str, words: list[str]) -> None:
    """Anything over a result that is here; elsewhere nothing, what the line itself says or an unrelated file."""
    place, name, here = state.path(source), os.path.basename(target), state.path(target)
    here = os.path.join(here, os.path.basename(source).rpartition(":")[2]) if os.path.isdir(here) else here
    if os.path.exists(here):
        guard.overwrite(here, state, words)
        return
    if not is_result_file(name):
        return
    told = stdin if source == "-" else "" if source == "/dev/null" else state.files.get(place)
    empty = source != "-" and os.path.isfile(place) and not os.path.getsize(place)
    empty = empty or not {"empty", "blank", "dummy", "zero", "zeros"}.isdisjoint(parts(os.path.basename(source)))
    unlike = os.path.splitext(place)[1] != os.path.splitext(name)[1] and os.path.isfile(place)
    unlike = unlike or bool("://" not in target and name != os.path.basename(source) and LIKE.chosen_name.match(name))
    only = "://" not in target and LIKE.only_name.fullmatch(name)  # best.pt of one place over final.pt of another
    other = source != "-" and unlike and (only or not guard.precious.lost(place, False))
    if empty or other or place in state.folders or (told is not None and guard.is_said(told)):
        guard.act("path", f"writes over {target}", words, target)


# -- HTTP


def request(guard: Walker, method: str, url: str, data: str, words: list[str]) -> None:
    """An HTTP call that ends something: by its method, path, Action or body, at a host that is known or a thing."""
    host = re.sub(r"^[a-z+]*:?//", "", url).partition("/")[0].partition("?")[0].rpartition("@")[2].partition(":")[0]
    path = url.partition(host)[2] if host else url
    known = [one for one in guard.table["hosts"] if is_host_of(f".{host.lower()}", one)]
    profile = guard.table["hosts"][known[0]] if known else ""
    named = [one for one in parts(LIKE.unknown.sub("", path.partition("?")[0])) if one != "api"]
    engine = bool(LIKE.engine_socket.search(" ".join(words))) or bool(LIKE.cluster_path.search(path))
    place = engine or about([*named, *(["job"] if engine else [])], bool(known))
    calls = any(re.search(rf"\b{re.escape(call)}\b", data + path) for call in guard.table["calls"])
    if method == "DELETE":
        last = parts(" ".join(LIKE.unknown.sub("", path).rstrip("/").split("/")[-2:]))  # models/NAME: that is deleted
        away = not LIKE.local_host.match(host) and _DELETED.intersection(one.removesuffix("s") for one in last)
        place = place or bool(away and not LIGHT.intersection(named))
        ends = (place or bool(LIKE.forge_path.search(path))) and not (engine and path.split("/")[-2:-1] == ["images"])
    elif method in ("GET", "HEAD", "OPTIONS"):
        ends = bool(known and method == "GET" and LIKE.path_verb.search(path.partition("?")[0]))
    else:
        said = ENDS.intersection(named) or LIKE.body_verb.search(data) or empties(["", data])
        ends = place and bool(said or calls) and not re.search(r"ResetType\W+(?:Force)?On\b", data)
    if ends or LIKE.api_action.search(f"{path} {data}"):
        box = re.split(r"[/?]", path.rstrip("/"))[-1]
        covered = profile if profile in guard.table["downs"] and not LIKE.beside_machine.search(url) else ""
        only = box if method == "DELETE" else ""
        guard.act("end", f"{method} {url} ends or stops it", words, box, covered, only)


def is_host_of(host: str, known: str) -> bool:
    """api.autodl.com is www.autodl.com's sister; domains that many services share need the whole name."""
    domain = "." + ".".join(known.split(".")[-2:])
    return host.endswith(known if known[0] == "." else f".{known}" if domain in _SHARED else domain)
