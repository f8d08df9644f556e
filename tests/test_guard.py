"""The guard as agents and shells meet it: hooks and shims through the installed files, stand-in clients that record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doccheck import generate
from rgt.guard import agent_hosts, hook, proof_lookup, verb_table
from rgt.guard.shell_walk import LOSES
from strangers import guard as corpus

import pytest

from . import front_door
from .real.support import need

ROOT = Path(__file__).resolve().parents[1]
RUN = "runs/20261101-101010-tiny-abc123"
Agent = Callable[..., "Turn"]

REFUSED = [
    # raw data; an archive over results; what was renamed or linked; a client as the way to HTTP; lists that flow
    *("rm data/train.bin", "dd if=/dev/zero of=data/train.bin", "ssh b 'rm -rf /workspace/p/data/raw'"),
    *("tar xf b.tar --overwrite -C runs", "mv wandb w && rm -rf w", "mkdir o; mv runs o/; rm -rf o"),
    *("ln -s runs /tmp/l; rm -rf /tmp/l/*", "gh api -X DELETE repos/me/p", "rsync -a --delete src/ b:/workspace/p/"),
    *("printf 'url=https://api.vast.ai/api/v0/instances/1/\\nrequest=DELETE' | curl -K -", "false || rm -rf runs"),
    *("python -c 'import os\nfor r, _, f in os.walk(\".\"):\n for x in f:\n  os.remove(os.path.join(r, x))'",),
    *("F=0; [ -e x ] && F=1; [ $F = 1 ] && rm -rf runs", "(exit 0); rm -rf runs", "[ -d x ] || exit; rm -rf runs"),
    *("F=0; while [ $# -gt 0 ]; do F=1; shift; done; [ $F = 1 ] && rm -rf runs", "M=$1; [ $M = a ] && rm -r runs"),
    *("f() { return; }; f; rm -rf runs", "trap 'exit 1' INT; rm -rf runs", "D=${D:-1}; [ $D = 1 ] || rm -rf runs"),
    *("rm -rf runs", f"cd runs && rm -rf {Path(RUN).name}", "rm -rf ./*", "rm ckpts/best.pt", "rm -rf ~/proj"),
    *("X=ru; rm -rf ${X}ns", 'r"m" -rf runs', r"\rm -rf runs", r"$'\x72m' -rf runs", "rm${IFS}-rf${IFS}runs"),
    *("bash -c 'rm -rf runs'", "eval rm -rf runs", "sudo env A=1 nohup timeout 5 nice rm -rf runs &"),
    *("echo cm0gLXJmIHJ1bnM= | base64 -d | sh", "bash <(echo rm -rf runs)", "echo 'rm -rf runs' > c.sh; sh c.sh"),
    *("ssh box 'rm -rf /workspace/runs'", "ssh box <<'EOF'\nsudo reboot\nEOF", "ssh b sudo poweroff"),
    *("for d in runs/*; do rm -rf $d; done", "ls runs | xargs -I{} rm -rf runs/{}", "rm -rf {src,outputs}"),
    *("find . -name '*.pt' -delete", "find runs -mtime +3 -exec sh -c 'rm \"$1\"' _ {} \\;", "fd -e pt -x rm"),
    *('f() { rm -rf "$1"; }; f runs', "alias x='rm -rf'; x runs", "trap 'rm -rf runs' EXIT"),
    *("git clean -fdx", "rsync -a --delete empty/ runs/", "mv new.pt ckpts/best.pt", "> ckpts/best.pt"),
    *("dd if=/dev/zero of=ckpts/best.pt", "truncate -s 0 results.json", "mkfs.ext4 /dev/nvme1n1"),
    *("docker volume rm ckpts", "docker run -v $PWD/runs:/r img rm -rf /r/x", "kubectl -n ml delete pvc data"),
    *("kill $(pgrep -f train.py)", "ps aux | grep '[t]rain' | awk '{print $2}' | xargs kill", "killall -9 python"),
    *("tmux kill-server", "tmux send-keys -t train C-c", "scancel -u me", "sky down -y c", "aws ec2 stop-instances"),
    *("runpodctl remove pod abc", "curl -X DELETE https://rest.runpod.io/v1/pods/a", "http DELETE $API/pods/a"),
    'curl https://api.runpod.io/graphql -d \'{"query": "mutation { podTerminate(input: {podId: 1}) }"}\'',
    *("python -c \"import shutil as s; s.rmtree('runs')\"", "python -c \"import sky; sky.down('c')\""),
    "python - <<'EOF'\nimport glob, os\nfor f in glob.glob('ckpts/*'):\n    os.remove(f)\nEOF",
    *("perl -e 'unlink glob \"ckpts/*\"'", "node -e \"require('fs').rmSync('runs', {recursive: true})\""),
    "git commit -m \"$(cat <<'EOF'\ndon't\nEOF\n)\" && rm -rf runs",
    'pwsh -c "Remove-Item -Recurse -Force runs"',
    # whatever starts the rest of its words, or prints the commands that a shell then runs
    *("uvx vastai destroy instance 1", "aws-vault exec p -- aws ec2 stop-instances", "python -m sky.cli down c"),
    *("ls -d runs/* | awk '{print \"rm -rf \" $0}' | sh", "squeue -h -o %i | sed 's/^/scancel /' | bash -s"),
    *(
        "git -c alias.x='!rm -rf runs' x",
        "vim -c '!rm -rf runs'",
        "tar cf x src --checkpoint-action=exec='rm -rf runs'",
    ),
    *("set d (ls -d runs/*); and rm -rf $d", "ipython -c '!rm -rf runs'", "awk 'BEGIN{c=\"rm -rf runs\"; system(c)}'"),
    *("ssh w 'cmd /c \"cd /d C:\\\\p && rmdir /s /q runs\"'", "ssh w powershell Stop-Computer -Force"),
    *(
        "find runs -delete -name '*.tmp'",
        "ln -sfn x ckpts/best.pt",
        "rsync -a --delete-excluded --exclude runs . b:/w/p",
    ),
    *(
        "curl -sG https://api.compshare.cn/ -d Action=StopCompShareInstance",
        "curl -sXDELETE https://rest.runpod.io/v1/a",
    ),
    *(
        "curl --unix-socket /run/docker.sock -XPOST http://d/containers/t/stop",
        "docker run bitnami/kubectl delete job t",
    ),
    # clients, SDKs and hosts that no table has: the verb and what it is about
    *("newctl vms delete a", "newctl compute instance terminate --id 1", "uvx newctl pod stop 1", "mcli delete run x"),
    *("aws ecs update-service --service t --desired-count 0", 'kubectl patch job t -p \'{"spec": {"suspend": true}}\''),
    *(
        "oci compute instance action --action SOFTSTOP",
        "scontrol update nodename=g1 state=down",
        "rmlint --delete runs",
    ),
    *("curl -X DELETE https://api.new.io/v1/instances/1", "curl -d '{}' http://127.0.0.1:3000/api/project/m/runs/stop"),
    "python -c \"import wandb; [r.delete() for r in wandb.Api().runs('me/llm')]\"",
    'python -c "import newsdk; newsdk.Client().instances.delete(1)"',
    "python -c \"import glob, shutil; list(map(shutil.rmtree, glob.glob('runs/*')))\"",
    # written on the line and run by it later; run on other machines; forced drops of data managers
    *("npm pkg set scripts.w='rm -rf runs' && npm run w", "echo '@daily rm -rf runs' > c && crontab c"),
    "printf 'tasks:\\n  w:\\n    cmds:\\n      - rm -rf runs\\n' > Taskfile.yml && task w",
    "printf 'services:\\n  j:\\n    volumes: [./runs:/r]\\n    command: rm -r /r' > compose.yml; docker compose run j",
    *(
        "salt -G 'role:gpu' cmd.run 'rm -rf /data/ckpts'",
        "salt n1 file.remove /data/runs",
        "dsh -g gpu 'rm -rf /data/runs'",
    ),
    *("ansible g -a 'rm -rf /data/runs'", "ansible g -m ec2_instance -a 'name=a state=absent'"),
    *("git annex drop --force ckpts", "git lfs prune --force", "datalad drop --reckless kill ckpts"),
    # code of other languages: a call that deletes what it does not name, and the path elsewhere in the code
    "ruby -rfileutils -e 'Dir[\"lightning_logs/version_*\"].each { |d| FileUtils.rm_rf(d) }'",
    *("perl -e 'unlink for <ckpts/*.pt>'", "R -e 'file.remove(list.files(\"ckpts\", full.names=TRUE))'"),
    *("tclsh <<< 'file delete -force runs'", "ruby -e 'FileUtils.rm_rf(ENV[\"CKPT_DIR\"])'"),
    *("terraform plan -destroy -out=p && terraform apply p", "grpcurl h:1 gpu.v1.Pods/StopPod", "heroku ps:stop web.1"),
    *("docker run --name a x && docker rm -f a trainer", "kubectl create job x && kubectl delete job --all"),
    *(
        "npm pkg set scripts.pretest='rm -rf runs' && npm test",
        "perl -e 'open(F,\">results.json\")'",
        "fab -- 'sudo halt'",
    ),
    "echo 'rm -rf runs' > .git/hooks/pre-commit; git commit -m x",
    *("nvidia-smi -r", "aria2c -d ckpts -o best.pt https://x/y"),
    # other shells: nushell, elvish, xonsh, fish, csh, zsh, PowerShell, cmd
    *("nu -c 'ls runs | where type == dir | each { |it| rm -rf $it.name }'", "nu -c 'let d = \"runs\"; rm -r $d'"),
    *("elvish -c 'for d [runs/*] { rm -rf $d }'", "xonsh -c \"import shutil; shutil.rmtree('runs')\""),
    *("xonsh -c '![rm -rf outputs]'", "fish -c 'function w; rm -rf $argv; end; w runs'", "zsh -c '=rm -rf wandb'"),
    *("csh -c 'foreach f (runs/*) ; rm -rf $f ; end'", "zsh -c 'zmodload zsh/files; zf_rm -rf outputs'"),
    *("zsh -c 'd=(runs/*); rm -rf $d'", "pwsh -c '$d = \"runs\"; Remove-Item -Recurse $d'"),
    "pwsh -c 'foreach ($f in Get-ChildItem runs) { Remove-Item -Recurse $f.FullName }'",
    *("cmd /c 'for /d %i in (runs\\*) do rd /s /q %i'", "pwsh -c 'gci runs | % { ri $_.FullName -r -fo }'"),
    'w() {\n  local at="$1"; shift\n  local p=("$@")\n  find "$at" -name "${p[@]}" -delete\n}\nw outputs "*.pt"',
    # clusters and data tools
    *("lfs find /scratch/ml --name '*.pt' --print0 | xargs -0 rm -f", "hdfs dfs -rm -r -skipTrash /u/ml/checkpoints"),
    *(
        "yarn application -kill application_1_42",
        "arena delete base-train -n ml",
        "mc ilm rule add --expire-days 1 m/b",
    ),
    'aws s3api put-bucket-lifecycle-configuration --bucket b --lifecycle-configuration \'{"Expiration": {"Days": 1}}\'',
    *("canceljob 1234", "mmdelfileset gpfs0 runs -f", "dropdb mlflow", "ssh box 'kill -9 12345'", "destroy-pod 3"),
    *("expect -c 'spawn ssh b; send \"rm -rf ~/runs\\r\"'", "echo runs | awk '{ system(\"rm -rf \" $1) }'"),
    *("python -c \"getattr(__import__('os'), 'system')('rm -rf runs')\"", "screen -S t -X stuff $'\\003'"),
    *(
        "git bisect run sh -c 'rm -rf runs'",
        ". /dev/stdin <<< 'rm -rf runs'",
        "gcloud compute ssh v -- 'rm -rf ~/runs'",
    ),
    *("sqlite3 mlflow.db 'DELETE FROM runs'", "git ls-files -o | xargs rm -rf", "y=$(( $(rm -rf runs; echo 1) + 1 ))"),
]
PASSED = [
    # not reached, or made by the line itself
    *("true || rm -rf runs", "false && rm -rf runs; ls", "if false; then rm -rf runs; fi", "exit 0\nrm -rf runs"),
    *("M=a; case $M in b) rm -rf runs;; a) ls;; esac", "D=1; [[ $D == 1 ]] || rm -rf runs", "((0)) && rm -rf runs"),
    *("python -c 'import shutil\nD = True\nif not D:\n shutil.rmtree(\"runs\")'", "die() { exit 1; }; die; rm -r runs"),
    *(
        "J=$(sbatch --parsable j.sh); scancel $J",
        "tmux new -d -s t pytest; tmux kill-session -t t",
        "rm -rf data/cache",
    ),
    *('python -c \'from pathlib import Path\nfor p in Path().rglob("*"):\n if p.suffix == ".pyc": p.unlink()\'',),
    *("truncate -s 9M /tmp/t.img && mkfs.ext4 /tmp/t.img", "wipefs /dev/vdb", "ln -s runs /tmp/l && rm /tmp/l"),
    *(
        "ls runs",
        "echo rm -rf runs",
        "git commit -m 'rm -rf runs; sky down'",
        "grep -r 'rm -rf runs' .",
        "# rm -rf runs",
    ),
    *(
        "rm -rf build dist node_modules __pycache__ .venv",
        "find . -name '*.pyc' -delete",
        "rm -rf ~/.cache/huggingface",
    ),
    *(
        "kill -0 4711",
        "kill %1",
        "python train.py & kill $!",
        "pkill -f tensorboard",
        "kill -USR1 $(pgrep -f train.py)",
    ),
    *("runpodctl pod list", "sky down --help", "kubectl delete job x --dry-run=client", "git clean -fdxn"),
    *("rsync -av box:/w/runs/ runs/", "docker run --rm img", "cp ckpts/best.pt copy.pt", f"tail -f {RUN}/train.log"),
    *("python train.py --out runs/new > train.log 2>&1", f"echo x >> {RUN}/train.log", "git rm --cached -r runs"),
    *("cat > notes.md <<'EOF'\nrm -rf runs\nEOF", ": <<'EOF'\nrm -rf runs\nEOF", "nuke() { rm -rf runs; }"),
    *(
        "curl -LsSf https://astral.sh/uv/install.sh | sh",
        "curl -X DELETE http://localhost:8000/items/1",
        "bash -n x.sh",
    ),
    *('d=$(mktemp -d); rm -rf "$d"', "ssh box 'rm -rf ~/.cache/pip /tmp/x'", "ssh b 'python t.py > runs/x/train.log'"),
    *(
        "python -c \"print('rm -rf runs')\"",
        "[1, 'runs'].remove('runs')",
        "rgt transfer down x --profile runpod --execute",
    ),
    *("uvx vastai show instances", "brew install vastai rm", "man vastai destroy", "aws ec2 stop-instances help"),
    *("ls runs | awk '{print \"rm -rf \" $0}'", "ls build | awk '{print \"rm build/\" $0}' | sh", "last -x reboot"),
    *("git -c alias.x='!ls' x", "vim -c 'set nu' results.json", "ipython -c '!ls runs'", "set d (ls runs); echo $d"),
    *("find . -path ./runs -prune -o -name '*.pyc' -delete", "rsync -a --delete src/ b:/w/src/", "ln -sfn runs latest"),
    *('curl -X POST https://rest.runpod.io/v1/pods -d \'{"name": "stop-words"}\'', "ssh w powershell Get-Process"),
    "python -c \"import boto3; boto3.client('ec2').terminate_instances(InstanceIds=['i'], DryRun=True)\"",
    *("rgt guard check -- rm -rf runs", "rgt gpu_gate -n x -- python train.py", f"mv {RUN} runs/renamed"),
    *(
        "npm pkg set scripts.w='rm -rf dist' && npm run w",
        "salt 'gpu*' cmd.run 'ls /data/ckpts'",
        "git annex drop --auto",
    ),
    *(
        "ansible g -m file -a 'path=/tmp/x state=absent'",
        "ansible g -m apt -a 'name=htop state=absent'",
        "git lfs prune",
    ),
    'node -e \'fs.readFileSync("results.json"); for (const f of fs.readdirSync("dist")) fs.unlinkSync(f)\'',
    *("Rscript -e 'x <- read.csv(\"results.json\"); rm(x)'", "tclsh <<< 'file delete build'"),
    *("terraform plan -destroy -out=p", "grpcurl h:1 gpu.v1.Pods/GetPod", "nvidia-smi mig -lgi"),
    "aliyun ecs DescribeInstances --RegionId cn-hangzhou --Status Stopped",
    "docker run -d --name s-$$ redis && docker exec s-$$ redis-cli ping && docker rm -f s-$$",
    *("c=$(docker create x) && docker cp $c:/a . && docker rm $c", "kubectl create job s && kubectl delete job/s"),
    *("nu -c 'ls runs | each {|f| print $f.name }'", "elvish -c 'for d [runs/*] { echo $d }'"),
    *("xonsh -c \"print('rm -rf runs')\"", "pwsh -c 'Remove-Item runs -Recurse -WhatIf'", "pulumi preview --destroy"),
    *("ansible all -m file -a 'path=/data/runs state=absent' --check", "zfs destroy -nv tank/ml/runs@weekly"),
    *("docker run --rm alpine sh -c 'rm -rf /runs /tmp/*'", "lfs find /scratch/ml --name '*.pt'", "mc ilm rule ls m/b"),
    # look-alikes of those: a verb that looks or adds comes first, or the thing is no loss
    *("newctl vms list --state terminated", "newctl create vm --name stop-me", "newctl ssh-key delete 1", "npm stop"),
    *(
        "aws ec2 delete-key-pair --key-name a",
        "docker image rm a",
        "kubectl scale deploy/t --replicas 3",
        "dvc gc --dry",
    ),
    *("curl -X DELETE http://localhost:8000/users/1", 'curl -d \'{"stop": "x"}\' http://localhost:8000/v1/completions'),
    *("sudo systemctl restart nginx", "python -c 'import ray; ray.shutdown()'", "psql -c 'select * from runs'"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.make_world(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(("line", "label"), [*((one, "refuse") for one in REFUSED), *((one, "pass") for one in PASSED)])
def test_what_is_an_act(world: Path, line: str, label: str) -> None:
    assert corpus.refused({"cmd": line}, world, world.parent) == (label == "refuse")


def test_the_first_look_lets_nothing_pass_that_has_a_judge() -> None:
    table = hook.read_table()
    names = [*LOSES, *json.loads(table)["commands"]]
    assert [
        one for one in names if one not in ("git", "nvidia-smi") and hook.is_harmless(event(f"{one} x"), table)
    ] == []
    assert all(
        hook.is_harmless(event(line), table) for line in ("ls -la runs", "git status", "nvidia-smi", "squeue --me")
    )


SCRIPTS = {
    "clean.sh": '#!/bin/sh\nrm -rf "$1"\n',
    "clean.py": "import argparse, shutil\np = argparse.ArgumentParser()\np.add_argument('--dir', default='runs')\n"
    "def wipe(path):\n    shutil.rmtree(path)\nwipe(p.parse_args().dir)\n",
    "Makefile": "OUT = runs\nclean: tidy\n\trm -rf $(OUT)\ntidy:\n\trm -rf build\n",
    "package.json": '{"scripts": {"clean": "rm -rf runs"}}',
    "pods.txt": "runs\n",
}


@pytest.mark.parametrize(
    "line",
    """./clean.sh runs, sudo bash -x clean.sh runs, cat clean.sh | sh -s -- runs, . ./clean.sh ckpts, python clean.py,
    make clean, npm run clean, xargs rm -rf < pods.txt, sbatch clean.sh runs""".split(","),
)
def test_a_named_script_is_read(world: Path, line: str) -> None:
    assert corpus.refused({"cmd": line, "files": SCRIPTS}, world, world.parent)
    assert not corpus.refused(
        {"cmd": "sh clean.sh build; make tidy; python clean.py --dir build", "files": SCRIPTS}, world, world.parent
    )


# -- through the installed hook, with clients that record


class Turn:
    """One command of an agent: blocked by its hook with a reason, or run in a shell."""

    def __init__(self, blocked: str, passed: str, calls: list[str]) -> None:
        self.blocked, self.said, self.calls = blocked, passed, calls


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "RGT_GUARD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    project = corpus.make_world(tmp_path)
    bins = tmp_path / "bin"
    bins.mkdir()
    for name in ("runpodctl", "vastai"):
        (bins / name).write_text(
            '#!/bin/sh\nprintf "%s|" "${0##*/}" "$@" >>"$HOME/calls"\necho >>"$HOME/calls"\nexit 7\n'
        )
        (bins / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bins}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.chdir(project)
    return tmp_path


@pytest.fixture
def agent(home: Path) -> Agent:
    """An agent does what its settings say: every hook first, exit 2 blocks, anything else does not."""

    def act(command: str, host: str = "claude") -> Turn:
        settings = json.loads(agent_hosts.AGENTS[host].path(False).read_text())
        (row,) = settings["hooks"][agent_hosts.AGENTS[host].event]
        event: dict[str, Any] = {"session_id": "s", "transcript_path": "/t.jsonl", "cwd": os.getcwd()}
        event |= {"hook_event_name": agent_hosts.AGENTS[host].event, "tool_name": row["matcher"], "turn_id": "1"}
        event |= {"tool_input": {"command": command, "description": "a step"}, "permission_mode": "default"}
        said = ""
        for one in row["hooks"]:
            done = subprocess.run(["sh", "-c", one["command"]], input=json.dumps(event), capture_output=True, text=True)
            said += done.stderr
            assert not done.stdout
            if done.returncode == 2:
                return Turn(done.stderr, "", [])
        subprocess.run(["bash", "-c", command], capture_output=True)
        calls = (home / "calls").read_text().splitlines() if (home / "calls").exists() else []
        return Turn("", said, calls)

    return act


def guard(*words: object, code: int = 0) -> str:
    done = front_door.call("guard.py", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_an_installed_hook_refuses_and_lets_pass(home: Path, agent: Agent, host: str) -> None:
    assert "in force" in guard("install", "--host", host)
    turn = agent("runpodctl pod delete abc123", host)
    assert "rgt transfer pull" in turn.blocked.replace(str(ROOT / "bin" / "rgt"), "rgt") and not turn.calls
    assert "rgt guard approve 'rm -rf runs'" in agent("rm -rf runs", host).blocked.replace(f"{ROOT}/bin/", "")
    assert Path(RUN, "run.json").exists()
    turn = agent("runpodctl pod list --all", host)
    assert turn.calls == ["runpodctl|pod|list|--all|"] and not turn.blocked + turn.said
    log = home / ".local/state/rgt/guard/refusals.jsonl"
    assert len(log.read_text().splitlines()) == 2


def test_settings_of_others_stay_and_come_back(home: Path) -> None:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "other"}]}
    before = json.dumps({"model": "opus", "hooks": {"PreToolUse": [other], "Stop": []}})  # not our layout
    path.write_text(before)
    assert "would write" in guard("install", "--host", "claude", "--dry-run")
    assert path.read_text() == before
    guard("install", "--host", "claude")
    once = path.read_text()
    assert "nothing to do" in guard("install", "--host", "claude")
    assert path.read_text() == once and json.loads(once)["hooks"]["PreToolUse"][0] == other
    guard("uninstall", "--host", "claude")
    assert path.read_text() == before and [one.name for one in path.parent.iterdir()] == ["settings.json"]
    path.write_text("{ // mine\n}")
    guard("install", "--host", "claude", code=2)
    assert path.read_text() == "{ // mine\n}"


def test_status_says_why_it_is_not_in_force(home: Path) -> None:
    assert "NOT in force: no hook of ours" in guard("status", "--host", "claude", code=1)
    guard("install", "--host", "claude")
    assert "claude    in force" in guard("status")
    path = home / ".claude" / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"disableAllHooks": True}))
    assert "disableAllHooks" in guard("status", "--host", "claude", code=1)
    path.write_text(path.read_text().replace("disableAllHooks", "x").replace("python3", "no-such-python"))
    assert "was not refused (exit 127" in guard("status", "--host", "claude", code=1)


def test_shims_pass_words_verbatim_and_find_the_real_program(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".bashrc").write_text("alias ll=ls\n")
    assert "open a new one" in guard("install", "--host", "shell", code=1)
    shims = agent_hosts.shim_folder()
    second = home / "second"  # the folder twice on PATH, once through a copy: still no loop
    second.mkdir()
    (second / "runpodctl").write_bytes((shims / "runpodctl").read_bytes())
    (second / "runpodctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{second}:{shims}/:{os.environ['PATH']}")
    assert "in force" in guard("status", "--host", "shell")
    words = ["runpodctl", "pod", "get", "a b", "", "*", "$HOME", "-x'\"", "new\\nline"]
    assert subprocess.run(words).returncode == 7
    assert (home / "calls").read_text() == "|".join(words) + "|\n"
    done = subprocess.run(["bash", "-c", "runpodctl pod delete abc; rm -rf runs"], capture_output=True, text=True)
    assert done.returncode == 4 and done.stderr.count("refused by rgt guard") == 2
    assert (home / "calls").read_text().count("\n") == 1 and Path(RUN).exists()
    (home / "bin" / "vastai").unlink()
    assert subprocess.run(["vastai", "show"], capture_output=True).returncode == 127
    guard("uninstall", "--host", "shell")
    assert not shims.exists() and (home / ".bashrc").read_text() == "alias ll=ls\n"


def test_the_openclaw_plugin_blocks(home: Path) -> None:
    guard("install", "--host", "openclaw")
    folder = home / ".openclaw" / "extensions" / "rgt-guard"
    assert json.loads((folder / "openclaw.plugin.json").read_text())["id"] == "rgt-guard"
    node = need("node", "nodejs")
    script = (
        f"import plugin from {json.dumps(str(folder / 'index.js'))};\n"
        "let ask; plugin.register({on: (name, handler) => { if (name === 'before_tool_call') ask = handler; }});\n"
        "for (const command of ['rm -rf runs', 'ls runs']) {\n"
        "  const said = await ask({toolName: 'exec', params: {command, workdir: process.cwd()}});\n"
        "  console.log(said?.block ?? false, (said?.blockReason ?? '').slice(0, 20));\n}\n"
    )
    done = subprocess.run([node, "--input-type=module", "-e", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["true refused by rgt guard", "false "], done.stderr
    config = home / ".openclaw" / "openclaw.json"
    assert json.loads(config.read_text())["plugins"]["entries"]["rgt-guard"] == {"enabled": True}
    config.write_text('{"theme": "dark"}')
    assert "openclaw.json does not enable it" in guard("status", "--host", "openclaw", code=1)
    guard("install", "--host", "openclaw")
    guard("uninstall", "--host", "openclaw")
    assert not folder.exists() and json.loads(config.read_text()) == {"theme": "dark"}


# -- proof and approval


def test_an_approved_act_passes_once(home: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    guard("install", "--host", "claude")
    line = f"rm -rf {RUN}"
    page = guard("approve", line, code=4)
    phrase = page.split('"')[1]
    guard("approve", line, "--words", "yes, do it", code=4)
    assert "shown a moment ago" in guard("approve", line, "--words", phrase, code=4)
    assert agent(f'rgt guard approve "{line}" --words "$(rgt guard approve {line})"').blocked
    monkeypatch.setattr("guard.READ", 0.0)
    assert "approved" in guard("approve", line, "--words", f"yes: {phrase}")
    guard("check", "--", line)  # looking does not use it up
    assert agent("rm -rf runs").blocked  # another act
    assert not agent(line).blocked and not Path(RUN).exists()
    other = f"rm -rf {RUN.replace('01-101010-tiny-abc123', '02-111111-base-0f00aa')}"
    assert agent(other).blocked
    monkeypatch.setattr(proof_lookup, "AGAIN", -1.0)
    acts = hook.find_acts(other, os.getcwd(), dict(os.environ))
    assert not proof_lookup.is_granted(proof_lookup.key(acts, os.getcwd()), dict(os.environ), True)
    guard("approve", "ls", code=2)
    assert "transfer pull" in guard("approve", "runpodctl pod delete abc", code=4)


def test_what_down_approved_may_run(home: Path, agent: Agent) -> None:
    guard("install", "--host", "claude")
    pulled = Path("pulled/run")
    pulled.mkdir(parents=True)
    (pulled / "PULL_VERIFIED.json").write_text("{}")
    command = "runpodctl pod delete abc123"
    assert f"transfer down {pulled} --profile runpod --id abc123" in agent(command).blocked
    row = {"event": "approved", "command": command, "execute": False, "time": time.time() - 60}
    (pulled / "events.jsonl").write_text(json.dumps(row) + "\n")
    assert agent(command).calls == ["runpodctl|pod|delete|abc123|"]
    assert agent("runpodctl pod delete other").blocked
    (pulled / "events.jsonl").write_text(json.dumps(row | {"time": time.time() - 3600}) + "\n")
    assert agent(command).blocked


def test_a_pid_is_looked_up(tmp_path: Path, world: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    ours = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE)
    detach = f"setsid {sys.executable} train.py >out 2>&1 & echo $!"
    done = subprocess.run(["sh", "-c", detach], cwd=tmp_path, capture_output=True, text=True)
    foreign = int(done.stdout)
    try:
        assert not corpus.refused({"cmd": f"kill {ours.pid}"}, world, world.parent)
        assert corpus.refused({"cmd": f"kill -9 {foreign}"}, world, world.parent)
        # gone, or in a process namespace that the guard does not see
        assert corpus.refused({"cmd": "kill 999999999"}, world, world.parent)
    finally:
        os.kill(foreign, 9)
        ours.kill()
        ours.wait()


# -- when the guard itself fails


def run_hook(data: bytes, *words: str, path: Path = agent_hosts.HOOK) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *words, str(path)], input=data, capture_output=True)
    return subprocess.CompletedProcess([], done.returncode, done.stdout.decode(), done.stderr.decode())


def event(command: object) -> bytes:
    return json.dumps({"tool_input": {"command": command}, "cwd": "/"}).encode()


def test_any_python_will_do(home: Path) -> None:
    for words in (["-I", "-S"], ["-S", "-E", "-s"], []):
        assert run_hook(event("runpodctl pod delete abc"), *words).returncode == 2
    assert run_hook(event(["bash", "-lc", "runpodctl pod delete abc"])).returncode == 2  # a list is a command, too


BROKEN = {
    "no JSON": (b"rm -rf {", "JSONDecodeError"),
    "a list": (b'["rm"]', "AttributeError"),
    "too long": (event("rm " + "x" * (1 << 20)), "longer than 1048576 bytes"),
    "too much work": (event("rm a; " + "f() { f | f; }; f;" * 9), "TooMuch"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_guard_does_not_stop_work(home: Path, name: str) -> None:
    data, why = BROKEN[name]
    done = run_hook(data)
    assert done.returncode == 0 and f"NOT in force for this command ({why}" in done.stderr.replace(
        "ValueError: the command line is ", ""
    )
    assert done.stderr.count("\n") == 1


def test_a_broken_table_and_the_switch(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    copy = tmp_path / "scripts" / "rgt" / "guard"
    shutil.copytree(agent_hosts.HOOK.parent, copy)
    (copy / "verb_table.json").write_text("{")
    done = run_hook(event("rm -rf x"), path=copy / "hook.py")
    assert done.returncode == 0 and "NOT in force" in done.stderr
    monkeypatch.setenv("RGT_GUARD", "off")
    assert run_hook(event("runpodctl pod delete abc")).returncode == 0


HOSTILE = ["(" * 2000, "$(" * 9, "{a," * 500, "`" * 501, "if " * 500, "x=a;" + "x=$x$x;" * 40, "f() { f; }; f"]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_no_text_breaks_the_reader(world: Path, number: int) -> None:
    corpus.refused({"cmd": f"rm {HOSTILE[number]}"}, world, world.parent)


def test_refusals_are_logged_without_secrets_and_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_hook(event("curl -X DELETE https://rest.runpod.io/v1/pods/a -H 'Authorization: Bearer rpa_SECRET123'"))
    log = home / ".local/state/rgt/guard/refusals.jsonl"
    assert "SECRET" not in log.read_text() and "rest.runpod.io" in log.read_text()
    log.write_text("x" * (proof_lookup.LOG + 1))
    run_hook(event("runpodctl pod delete abc"))
    assert log.stat().st_size < 2000 and log.with_name("refusals.jsonl.1").exists()


# -- the table


def test_a_new_profile_is_guarded(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "profiles" / "runpod.md").read_text()
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "newcloud.md").write_text(
        text.replace("name: runpod", "name: newcloud")
        .replace("runpodctl", "newctl")
        .replace("rest.runpod.io", "api.new.io")
    )
    table = verb_table.build(tmp_path / "profiles")
    assert ["newcloud", "pod delete"] in table["commands"]["newctl"] and table["hosts"]["api.new.io"] == "newcloud"
    old = tmp_path / "old.json"
    old.write_text(verb_table.text(table))
    os.utime(old, (0, 0))
    monkeypatch.setattr(hook, "TABLE", str(old))
    assert hook.read_table().decode() == generate.guard_table(ROOT)  # made again, into the cache
    monkeypatch.setattr(hook, "_made_table", lambda cached: pytest.fail("made twice"))
    assert b'"runpodctl"' in hook.read_table()
