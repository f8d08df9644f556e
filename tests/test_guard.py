"""The guard as agents and shells meet it: hooks and shims through the installed files, stand-in clients that record."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doccheck import generate
from rgt.guard import agent_hosts, destroyers, hook, proof_lookup, verb_table
from rgt.guard.quick_start import LIKE
from rgt.guard.shell_walk import LOSES
from strangers import guard as corpus

import pytest

from . import front_door
from .real.support import need

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "evals" / "strangers" / "guard"
RUN = "runs/20261101-101010-tiny-abc123"
Agent = Callable[..., "Turn"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.make_world(tmp_path_factory.mktemp("home"))


DRAWS = sorted(CORPUS.glob("*.jsonl"))
CHUNKS = 6  # so that the workers share them

# of the newest draw, not mended yet
WRONG = """cc-408 dd-140 dd-381 ff-055 g-029 l-216 l-385 ll-029 ll-093 ll-274 ll-277 ll-380 m-065 m-165 mm-073
oo-018 oo-160 oo-187 oo-296 pp-250 qq-077 qq-176 qq-202 rr-116 u-263 w-162""".split()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_lines_of_strangers(world: Path, chunk: int) -> None:
    """Thousands of lines by authors who had not seen the code, with the label that they gave."""
    lines = [json.loads(line) for path in DRAWS[chunk::CHUNKS] for line in path.read_text().splitlines()]
    wrong = [one["id"] for one in lines if corpus.refused(one, world, world.parent) != (one["label"] == "refuse")]
    draw = {one["id"] for one in lines}
    assert len(draw) > 5000 // CHUNKS and sorted(wrong) == [name for name in WRONG if name in draw]


def test_every_line_that_is_wrong_is_in_a_draw() -> None:
    assert {name for name in WRONG for path in DRAWS if f'"{name}"' in path.read_text()} == set(WRONG)


REACHING = r"""kill -9 $(lsof -t -i :29501)
fuser -k 29500/tcp
ps -eo pid,pcpu --sort=-pcpu 2>/dev/null | head -2 | awk '{print $1}' | xargs kill
ssh gpu2 'bash /opt/lab/wipe_node.sh'
psql -U mlflow --command='DELETE FROM params'
python train.py trainer.output_dir=outputs/exp1 trainer.overwrite=True
lftp -c 'open sftp://nas; mirror --delete /vol/runs runs'
find runs -name metrics.jsonl -exec perl -pi -e 's/nan/0/' {} +
vi '+g/nan/d' +x results.json
'{}' | Set-Content .\results.json
unzip -oq downloads/w.zip weights/final.safetensors
ssh box 'mkdir runs; rm -rf runs/*'
mkdir runs/new; mv runs/20261101-101010-tiny-abc123 runs/new/; rm -rf runs/new
mv runs runs-$$ && rm -rf runs-$$
scp notes.txt gpu1:proj/ckpts/best.pt
aws s3api put-object --bucket lab --key runs/exp1/results.json --body /dev/null
docker run --rm -v $PWD:/w --entrypoint=find alpine /w/runs -name '*.pt' -delete
ruby -e 'require "aws-sdk-s3"; Aws::S3::Client.new.delete_object(bucket: "lab", key: "exp1/best.pt")'
grep -L done runs/*/train.log | perl -ne 'chomp; system("rm -rf $_")'
bfg --delete-files '*.pt'
ssh gpu1 "echo '{}' > runs/exp1/results.json"
mkdir -p /tmp/e && rclone sync /tmp/e b2:lab-checkpoints --transfers 32
s5cmd rm 's3://lab/2026/*'
aws s3 cp s3://lab/best.pt ckpts/
cd bulid; rm -rf ./*
cd "$BUILD" && rm -rf ./*
git ls-files -oi --exclude-standard | xargs rm -f
du -a . | sort -n | tail -5 | cut -f2 | xargs rm -rf
find . -empty -o -name '*.pt' -delete
export HOME=$PWD; rm -rf ~/runs
git stash -u && git stash drop
terraform plan -destroy -out=d.tfplan; terraform apply d.tfplan
df | xargs -I{} find {}/runs -delete
rm -rf .git/lfs/objects
scp gpu1:proj/results.json .
kubectl cp ml/trainer-0:/out/best.pt ckpts/best.pt
curl -O https://host/results.json
tar -cf ckpts/best.pt src
zip results.json notes.txt
pandoc README.md -o results.json
find /mnt/nas/exps -name '*.ckpt' | while read -r f; do rm "$f"; done
for d in /workspace/runs/*; do [ -d "$d" ] && rm -rf "$d"; done
trap 'rm -rf "$D"' EXIT; D=outputs/exp1; ls
export PROMPT_COMMAND='rm -rf ckpts'
echo '0 3 * * * root rm -rf /srv/runs' | sudo tee /etc/cron.d/tidy
screen -dmS x bash -c 'rm -rf runs'
node -e "const {TerminateInstancesCommand: T} = require('@aws-sdk/client-ec2'); c.send(new T({InstanceIds: ['i-1']}))"
gsutil -m rm -I <<< gs://lab/runs/a/best.pt
az deployment group create -g rg --template-file empty.json --mode complete
!rm -rf /content/drive/MyDrive/ckpts
echo {} >! results.json
git config alias.fresh '!git clean -fdx' && git fresh
git archive --output=ckpts/best.pt HEAD
find src | cpio -o -F ckpts/best.pt
echo '{}' | ssh box 'cat > results.json'
awk '{print > "results.json"}' notes.txt
Rscript -e 'writeLines("", "results.json")'
node -e "require('fs').renameSync('notes.txt', 'results.json')"
groovy -e 'new File("results.json").delete()'
pwsh -c '$d = "runs","ckpts"; foreach ($x in $d) { rm -r $x }'
nvim --headless -c 'call delete("runs", "rf")' -c q
python -c "import h5py; h5py.File('ckpts/best.pt', 'w')"
python -c "import tensorflow as tf; tf.io.gfile.remove('ckpts/best.pt')"
python -c "from lab_cloud import Client; Client().instances.terminate(['a'])"
docker run --rm -v ckpts:/d alpine sh -c 'rm -rf /d/*'
docker run --rm amazon/aws-cli ec2 terminate-instances --instance-ids i-1
kubectl run c --image=b --overrides='{"spec":{"containers":[{"command":["sh","-c","rm -rf /ckpts/*"]}]}}'
echo 'rm -rf ~/proj/runs' >> ~/.bash_logout
diskutil apfs deleteVolume disk3s7
rm /var/lib/libvirt/images/trainer.qcow2
env TF_CLI_ARGS_apply=-destroy terraform apply
labsync push --delete-remote runs
curl --output-dir ckpts -O https://host/best.pt
awk -v d=runs 'BEGIN { system("rm -rf " d) }'
gawk 'BEGIN { c = sprintf("rm -rf %s", "runs"); system(c) }'
cut -d, -f2 stale.csv | xargs rm -rf
printf 'runs\n' > d.txt; rm -rf $(grep -v '^#' d.txt)
kill $(tmux list-panes -s -F '#{pane_pid}')
gh codespace ssh -c x -- rm -rf runs
nvme format-nvm /dev/nvme0n1
uberftp -rm -r gsiftp://host/scratch/checkpoints
gfal-rm -r root://host//eos/checkpoints
lfs hsm_remove /lustre/runs/exp1/best.pt
dbxcli rm /backup/final.safetensors
mmunlinkfileset gpfs0 runs
megacli -CfgLdDel -L0 -a0
fence_ipmilan -a bmc --action=off
partclone.ext4 -r -s x.img -o /dev/sdb1
isi sync jobs cancel 3
psql -c "DROP TABLE runs; CREATE TABLE runs(a int)"
psql -c "CREATE TABLE IF NOT EXISTS runs(a int); DROP TABLE runs"
curl -X DELETE https://vectors.lab.edu/collections/embeddings
kubectl annotate notebook nb kubeflow-resource-stopped=now
ssh gpu1 "echo $(echo 'rm -rf runs' | base64) | base64 -d | sh"
cp -rf runs/20261101-101010-tiny-abc123/. runs/20261102-111111-base-0f00aa/
rsync -a runs/20261101-101010-tiny-abc123/ runs/20261102-111111-base-0f00aa/
rm -f **/*.log
scp ckpts/best.pt gpu1:weights/final.safetensors
pcluster update-compute-fleet -n c --status STOP_REQUESTED
git -C /srv/ml/proj clean -fdX
gh workflow run teardown-gpu.yml
gh run list -w train.yml --json databaseId -q '.[].databaseId' | xargs -n1 gh run cancel
rm -f data/bags/2026-10-*/rosbag2_*.mcap
ssh gpu1 rm -rf work_dirs/rtmdet
python -c "from datacrunch import C; c = C(); c.instances.action('a', c.constants.instance_actions.DELETE)"
gci -r -fi *.pt | ri
aws backup delete-recovery-point --recovery-point-arn a
Remove-AzResourceGroup rg
fly scale count 0
b2 bucket delete lab
gscloud server rm x
flock /tmp/l -c 'rm -rf runs'
echo runs | sed 's/.*/rm -rf &/e'
mpirun -np 2 python -c "import shutil; shutil.rmtree('runs')"
rsync -az --delete --exclude runs ./ gpu1:proj/""".splitlines()
BESIDE = (
    r"""lsof -ti:8080 | xargs kill
pgrep -u $USER -f tensorboard | xargs -r kill
bash ci/cleanup_cache.sh
psql -d lab -c 'DROP TABLE IF EXISTS tmp_scores'
python eval.py --ckpt outputs/exp1/checkpoint-500 --output_dir /tmp/eval --overwrite
rsync -a --delete src tests gpu1:proj/
vim -es -c '%s/a/b/g' -c wq src/model.py
Set-Content .\config.yaml 'lr: 1'
tar -xf downloads/a.tar -C /tmp results.json
ssh box 'mkdir runs/p && touch runs/p/x && rm -rf runs/p'
touch runs/.probe && rm runs/.probe
d=runs/smoke-$(date +%s); python train.py --out $d; rm -rf $d
aws s3 cp ckpts/best.pt s3://team-ckpts/new/best.pt
bash scripts/train.sh | rclone rcat r2:lab/runs/e9/metrics.jsonl
gcloud compute tpus tpu-vm ssh v4 --worker=0 --command 'tail ~/outputs/train.log'
node -e 'require("@aws-sdk/client-s3"); const m = new Map(); m.delete("a")'
c=$(docker create acme/x) && docker rm "$c"
git filter-repo --analyze
aws s3 rm --recursive s3://lab/tmp/
cd bulid && rm -rf ./*
cd bulid || exit 1; rm -rf ./*
set -e; cd bulid; rm -rf ./*
git clone -q https://host/foo; cd foo; rm -rf ./*
git ls-files | xargs sed -i 's/a/b/'
find . -name '*.pyc' | sed 's/.*/rm "&"/' | sh
rename -f 's/step_/s/' runs/*/checkpoints/*.pt
rm -rf "${OUT_DIR:?}"/*
rm -rf 'runs/*'
git clean -fdX build/
rm -rf .git/lfs/tmp
scp gpu1:proj/results.json results-gpu1.json
rsync -au gpu1:proj/results.json .
scp ckpts/best.pt gpu1:proj/ckpts/best.pt
aws s3 cp /tmp/merged.safetensors s3://lab/releases/model.safetensors
tar -cf runs.tar runs
grep -o results.json notes.txt
trap 'rm -rf "$RUNS"' EXIT; RUNS=$(mktemp -d); ls
trap 'rm -rf runs' EXIT; trap - EXIT
azcopy sync runs https://lab.blob.core.windows.net/runs --delete-destination=false
helm template t charts/t --set replicas=0 | kubeconform -
kubectl get pv -o jsonpath='{.items[?(@.spec.policy=="Delete")].metadata.name}'
node -e "const {S3Client} = require('@aws-sdk/client-s3'); const c = new S3Client({}); c.destroy()"
psql -c "select 'drop table runs' as warning"
python -c 'import os; [os.remove(f"{r}/{f}") for r, _, fs in os.walk(".") for f in fs if f.endswith(".pyc")]'
!ls runs
git config alias.st status && git st
git push -o ci.skip
cat results.json | ssh box 'cat > backup/results.json'
duckdb -c "copy (select * from 'results.json') to '/tmp/x.csv'"
awk '$2 > "0.5" {print}' results.json
node -e "require('fs').copyFileSync('results.json', '/tmp/r.json')"
pwsh -c 'foreach ($d in "build","dist") { Remove-Item $d -Recurse }'
python -c "print('runs/x'.replace('runs', 'w'))"
python -c "import numpy as np; np.memmap('data/train.bin', dtype='u2', mode='r+')"
python -c "import docker; docker.from_env().images.prune()"
docker run --rm -v pip-cache:/c alpine rm -rf /c/http
echo 'alias gs="git status"' >> ~/.bashrc
diskutil apfs list
rm -f ckpts/*.tmp
rclone delete remote:lab/tmp --include '*.tmp'
TF_CLI_ARGS_plan=-destroy terraform plan
labsync push --delete-remote=false runs
linter --wipe-cache src
snakemake -n --delete-all-output
curl --output-dir /tmp -O https://host/results.json
aria2c -d data -o train.bin https://host/train.bin
awk -v c='rm -rf runs' 'BEGIN { system("date"); print c }'
xargs rm -f < build/install_manifest.txt
gh codespace ssh -c x -- ls runs
nvme list --output-format=json
gfal-ls root://host//eos/checkpoints
fio --filename=/dev/nvme0n1 --rw=randread --name=write
mount -o rw /dev/sdb1 /mnt/x
fence_ipmilan -a bmc -o status
curl -X DELETE http://127.0.0.1:6333/collections/embeddings
curl -X DELETE https://gitlab.com/api/v4/projects/1/repository/branches/old
curl -X POST https://bmc/redfish/v1/Systems/1/Actions/ComputerSystem.Reset -d '{"ResetType":"On"}'
kubectl annotate pod a note=stopped
pass rm web/github
gdb -p 4321 -batch -ex bt
scancel --usage
aliyun ecs DeleteInstance --InstanceId i --DryRun true
hcloud server enable-protection trainer delete rebuild
gci -r -fi __pycache__ | ri -r
tmux kill-session -t tensorboard
kubectl delete cm,secret -l app=old
aws s3api delete-bucket-policy --bucket lab
gcloud compute instances remove-tags a --tags http
git checkout -b fix/delete-runs
cp -r runs runs_copy && rm -rf runs_copy
python -c "import boto3, moto; boto3.client('ec2').terminate_instances(InstanceIds=['i'])"
python -m py_compile scripts/wipe.py
rsync -az --delete --exclude=runs --exclude=outputs --exclude=ckpts --exclude=weights --exclude=wandb \
  --exclude=lightning_logs --exclude=results.json --exclude=data ./ gpu1:proj/
""".replace("\\\n", "")
    .strip()
    .splitlines()
)


def test_what_a_line_reaches_and_what_it_made_itself(world: Path) -> None:
    assert [line for line in REACHING if not corpus.refused({"cmd": line}, world, world.parent)] == []
    assert [line for line in BESIDE if corpus.refused({"cmd": line}, world, world.parent)] == []


def test_each_pattern_finds_its_example() -> None:
    blocks = Path(hook.HERE, "patterns.txt").read_text().split("\n\n")[2:]
    found = [re.fullmatch(r"# .+\n# e\.g\. (.+)\n(\w+)\n(?:  .+\n?)+", one) for one in blocks if one[0] != "="]
    assert len(found) > 70 and all(found)
    for match in filter(None, found):
        example = re.sub(r"\\(ue00\d)", lambda sign: chr(int(sign[1][1:], 16)), match[1])
        assert getattr(LIKE, match[2]).search(example), match[2]


def test_the_first_look_lets_nothing_pass_that_has_a_judge() -> None:
    table = hook.read_table()
    names = [*LOSES, *json.loads(table)["commands"]]
    passing = {one for one in names if hook.is_harmless(event(f"{one} x"), table)}
    assert passing <= {"git", "nvidia-smi"}
    assert all(hook.is_harmless(event(line), table) for line in ("ls -la runs", "git status", "squeue --me"))


SCRIPTS = {
    "clean.sh": '#!/bin/sh\nrm -rf "$1"\n',
    "clean.py": "import argparse, shutil\np = argparse.ArgumentParser()\np.add_argument('--dir', default='runs')\n"
    "def wipe(path):\n    shutil.rmtree(path)\nwipe(p.parse_args().dir)\n",
    "Makefile": "OUT = runs\nclean: tidy\n\trm -rf $(OUT)\ntidy:\n\trm -rf build\n",
    "package.json": '{"scripts": {"clean": "rm -rf runs"}}',
    "pods.txt": "runs\n",
    "clean.ps1": "$d = 'runs','outputs'\nforeach ($x in $d) { Remove-Item $x -Recurse }\n",
    "clean.ipynb": '{"cells": [{"cell_type": "code", "source": ["import os\\n", "!rm -rf runs\\n"]}]}',
    "clean.awk": 'BEGIN { system("rm -rf runs") }\n',
    "tasks.py": "@task\ndef wipe(c):\n    c.run('rm -rf runs')\n@task\ndef tidy(c):\n    c.run('rm -rf build')\n",
    "play.yml": "- hosts: all\n  roles:\n    - tidy\n",
    "roles/tidy/tasks/main.yml": "- name: tidy\n  file:\n    path: /srv/runs\n    state: absent\n",
    "pod.yaml": "run: |\n  cd proj\n  rm -rf /ckpts/*\n",
    "Taskfile.yml": "tasks:\n  reset:\n    cmds:\n      - task: wipe\n  wipe:\n    cmds:\n      - rm -rf runs\n",
    "mise.toml": "[tasks.wipe]\nrun = 'rm -rf runs'\n",
    "box.sh": 'case "$1" in\n  ls) ls runs ;;\n  down) docker compose down -v ;;\nesac\n',
    "ask.sh": 'read a\n[ "$a" = y ] || exit 1\nrm -rf runs\n',
    "box.py": "import argparse, lib\nfrom lib import wipe\ndef ls(a): print(a)\ndef down(a): wipe()\n"
    "p = argparse.ArgumentParser()\nsub = p.add_subparsers()\na = sub.add_parser('ls')\na.set_defaults(func=ls)\n"
    "b = sub.add_parser('down')\nb.set_defaults(func=down)\np.parse_args()\n",
    "flag.py": "import argparse, shutil\np = argparse.ArgumentParser()\np.add_argument('--yes', action='store_true')\n"
    "a = p.parse_args()\nif not a.yes:\n    print('would')\nelse:\n    shutil.rmtree('runs')\n",
    "lib.py": "import shutil\ndef wipe():\n    shutil.rmtree('runs')\n",
    "tags.yml": "- name: a\n  file:\n    path: /srv/runs\n    state: absent\n  tags: [wipe]\n",
}


NAMING = """./clean.sh runs, sudo bash -x clean.sh runs, cat clean.sh | sh -s -- runs, . ./clean.sh ckpts,
python clean.py, make clean, npm run clean, xargs rm -rf < pods.txt, sbatch clean.sh runs,
pwsh -File clean.ps1, jupyter execute clean.ipynb, papermill clean.ipynb out.ipynb, awk -f clean.awk, inv wipe,
ansible-playbook play.yml, sky launch pod.yaml,
gh workflow run infra.yml -f action=destroy, task reset, mise run wipe, ./box.sh down,
echo y | sh ask.sh, python flag.py --yes, python flag.py $X, ansible-playbook tags.yml -t wipe,
torchrun --nproc_per_node 2 clean.py, docker run -v $PWD:/w -w /w alpine sh clean.sh runs,
cp clean.sh .git/hooks/post-merge; sh .git/hooks/post-merge runs""".split(",")
CHOSEN = """task --dry reset; ./box.sh ls; bash opt.sh -n -d runs; python box.py ls;
gh workflow run infra.yml -f action=plan; cargo run -- build; mise tasks"""


def test_a_named_script_is_read(world: Path) -> None:
    passing = [line for line in NAMING if not corpus.refused({"cmd": line, "files": SCRIPTS}, world, world.parent)]
    assert passing == []
    harmless: dict[str, object] = {"cmd": "sh clean.sh build; make tidy; python clean.py --dir build", "files": SCRIPTS}
    assert not corpus.refused(harmless, world, world.parent)
    harmless["cmd"] = CHOSEN
    assert not corpus.refused(harmless, world, world.parent)
    harmless["cmd"] = "inv tidy; jupyter nbconvert --to html clean.ipynb; ansible-playbook --check play.yml"
    assert not corpus.refused(harmless, world, world.parent)


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
    before = json.dumps({"model": "opus", "hooks": {"PreToolUse": [other], "Stop": []}})
    path.write_text(before)
    assert "would write" in guard("install", "--host", "claude", "--dry-run")
    assert path.read_text() == before
    guard("install", "--host", "claude")
    once = path.read_text()
    assert "nothing to do" in guard("install", "--host", "claude")
    assert path.read_text() == once and json.loads(once)["hooks"]["PreToolUse"][0] == other
    guard("uninstall", "--host", "claude")
    assert json.loads(path.read_text()) == json.loads(before)
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
        see = destroyers.read_proc
        assert not corpus.refused({"cmd": f"kill {ours.pid}"}, world, world.parent, see)
        assert corpus.refused({"cmd": f"kill -9 {foreign}"}, world, world.parent, see)
        # gone, or in a process namespace that the guard does not see
        assert corpus.refused({"cmd": "kill 999999999"}, world, world.parent, see)
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
