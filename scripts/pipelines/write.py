"""The folder of a pipeline: train.sh, training_config.yaml, pretrain.py, lib/, and what its target needs.

It stands alone: copied to a box that has the framework, click, numpy and pyyaml, `./train.sh` trains there.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from backends import KINDS, Order
from pipelines import ledger, settings
from pipelines.progress import status
from rgt import files, job, schema
from rgt.errors import bad_input, from_os_error, lacking
from rgt.hosts import Host
from rgt.ids import slugify
from rgt.rundir import Run

SCRIPTS = Path(__file__).resolve().parents[1]
TEMPLATES = SCRIPTS / "templates"
PARTS = ("rgt", "artifacts", "pipelines", "schemas")
ENTRY = {"nanogpt": "nanogpt_pretrain.py", "litgpt": "litgpt_pretrain.py", "hf-trainer": "hf_pretrain.py"}
TARGETS = tuple(sorted(KINDS))
GRACE = "5m"


def write(folder: Path, config: dict[str, Any], target: str) -> list[Path]:
    """All or nothing: a folder that holds anything is refused, and a failure leaves no half."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise bad_input(f"{folder} exists already and is not empty; a new pipeline needs a new folder")
    final = folder.absolute()
    beside = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        beside.mkdir(parents=True)
        _fill(beside, final, config, target)
        if folder.exists():  # the folder itself stays: its caller may stand in it
            for path in list(beside.iterdir()):
                path.rename(folder / path.name)
        else:
            beside.rename(folder)
    except OSError as error:
        raise from_os_error(error, f"write {folder}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return sorted(path for path in folder.iterdir() if path.name != "lib")


def _fill(here: Path, final: Path, config: dict[str, Any], target: str) -> None:
    schema.check(config, "training_config", settings.NAME)
    files.write_text(here / settings.NAME, settings.dump(config))
    text = (TEMPLATES / "train.sh").read_text(encoding="utf-8").replace("@LAUNCH@", _launch(config))
    files.write_text(here / "train.sh", text)
    (here / "train.sh").chmod(0o755)
    shutil.copyfile(TEMPLATES / ENTRY[config["framework"]], here / "pretrain.py")
    for part in PARTS:
        shutil.copytree(SCRIPTS / part, here / "lib" / part, ignore=shutil.ignore_patterns("__pycache__"))
    run = Run(here)
    ledger.write_index(run, [])
    files.write_text(run.status, status(run, config)["text"])
    spec = description(config, final, target)
    schema.check(spec, "job", "job.yaml")
    files.write_text(here / "job.yaml", json.dumps(spec, indent=2) + "\n")  # JSON is YAML
    if target == "kaggle":
        _kaggle(here, spec)


def _launch(config: dict[str, Any]) -> str:
    """nanoGPT's train.py starts its own processes; the other two are started by torchrun on several cards."""
    if config["devices"] == 1 or config["framework"] == "nanogpt":
        return 'exec "$python" pretrain.py'
    return (
        "# torchrun waits 30 s after a signal, then kills; a save takes longer\n"
        "export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-300}\n"
        "export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1\n"
        'rm -f "$RUN/.exit_code"\n'
        f'"$python" -m torch.distributed.run --standalone --nproc_per_node={config["devices"]} pretrain.py &\n'
        "child=$!\n"
        "trap 'kill -TERM \"$child\"' TERM INT\n"
        "trap 'kill -USR1 \"$child\"' USR1\n"
        'while :; do wait "$child"; code=$?; kill -0 "$child" 2>/dev/null || break; done\n'
        "# torchrun makes 1 of whatever its workers ended with; the first of them wrote what it was\n"
        'if [ -s "$RUN/.exit_code" ]; then code=$(cat "$RUN/.exit_code"); fi\n'
        'exit "$code"'
    )


def description(config: dict[str, Any], folder: Path, target: str) -> dict[str, Any]:
    """job.yaml for launch.py. train.sh starts the processes of several cards itself."""
    cuda = config["device"] == "cuda"
    spec: dict[str, Any] = {"name": slugify(config["name"]), "command": ["bash", "train.sh"], "grace": GRACE,
                            "gpus_per_node": config["devices"] if cuda else 0, "workdir": str(folder)}  # fmt: skip
    if target == "kaggle":
        owner, slug = kaggle_owner(), slugify(config["name"])
        spec["workdir"] = "/kaggle/pipeline"
        spec["mounts"] = [{"from": f"dataset:{owner}/{slug}", "to": "/kaggle/pipeline"}]
        if cuda:  # named, since the default changes: it was a P100 until September 2026
            spec["hardware"] = {"accelerators": "NvidiaTeslaT4"}
    return spec


def kaggle_owner() -> str:
    owner = os.environ.get("KAGGLE_USERNAME", "")
    if not owner:
        raise lacking("KAGGLE_USERNAME is not set; kernel-metadata.json names its owner: export it and try again")
    return owner


def _kaggle(here: Path, spec: dict[str, Any]) -> None:
    """What `kaggle kernels push` takes, made by the same code that launch.py uses; and the dataset's own metadata."""
    from backends import kaggle

    order = Order(job.from_dict(spec, here), slugify(spec["name"]), "kaggle", [Host("")])
    name = f"{kaggle_owner()}/{slugify(spec['name'])}-train"
    files.write_json(here / "kernel-metadata.json", kaggle.metadata(order, name))
    files.write_text(here / "runner.py", kaggle.runner(order))
    dataset = {"title": slugify(spec["name"]), "id": spec["mounts"][0]["from"].partition(":")[2],
               "licenses": [{"name": "other"}]}  # fmt: skip
    files.write_json(here / "dataset-metadata.json", dataset)
