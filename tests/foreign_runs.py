"""Runs of known values, written by the real libraries. A script: `foreign_runs.py KIND FOLDER`, a process each.

Every kind writes loss of train and val over STEPS steps, a learning rate of 0.1 and the seed 7.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

STEPS = 6
NEEDS = {
    "tensorboard": "tensorboard",
    "tensors": "tensorboard",
    "mlflow-db": "mlflow",
    "mlflow-folder": "mlflow",
    "trackio": "trackio",
    "wandb": "wandb",
    "lightning": "lightning",
    "transformers": "transformers",
}


def losses(step: int) -> tuple[float, float]:
    """Of train and val: numbers with long fractions, which a careless reader would change."""
    return 2 / (step + 3), 2 / (step + 7) + 1e-9


def tensorboard(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step in range(STEPS):
            train, val = losses(step)
            writer.add_scalar("Loss/train", train, step, new_style=step % 2 == 0, double_precision=step % 2 == 0)
            writer.add_scalar("Loss/val", val, step)
        writer.add_hparams({"lr": 0.1, "seed": 7, "name": "adam", "bf16": True}, {"hparam/acc": 0.5})


def tensors(folder: Path) -> None:
    """As TensorFlow's tf.summary and Keras write them: tensors, in a folder per split; and a writer that went back."""
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
    from tensorboard.compat.tensorflow_stub import dtypes
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for split, which in (("train", 0), ("validation", 1)):
        writer = EventFileWriter(str(folder / split))

        def add(step: int, tag: str, tensor: Any, writer: Any = writer) -> None:
            value = summary_pb2.Summary.Value(tag=tag, tensor=tensor)
            summary = summary_pb2.Summary(value=[value])
            writer.add_event(event_pb2.Event(wall_time=1.8e9 + step, step=step, summary=summary))

        shape = tensor_shape_pb2.TensorShapeProto()
        vector = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=3)])
        double, floats = dtypes.float64.as_datatype_enum, dtypes.float32.as_datatype_enum
        for step in (*range(STEPS + 4), *range(STEPS - 2, STEPS)):
            if step == STEPS - 2:
                started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                writer.add_event(event_pb2.Event(wall_time=1.8e9, step=step, session_log=started))
            number = losses(step)[which]
            add(step, "epoch_loss", tensor_pb2.TensorProto(dtype=double, tensor_shape=shape, double_val=[number]))
            add(step, "kernel", tensor_pb2.TensorProto(dtype=floats, tensor_shape=vector, float_val=[1, 2, 3]))
        writer.close()


def mlflow_store(uri: str) -> None:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("e")
    with mlflow.start_run(run_name="base"):
        mlflow.log_params({"lr": 0.1, "seed": 7})
        for step in range(STEPS):
            train, val = losses(step)
            mlflow.log_metrics({"train/loss": train, "val/loss": val}, step=step)
        mlflow.log_metric("gap", float("inf"))
        mlflow.log_metric("hole", float("nan"))


def trackio_project(folder: Path) -> None:
    os.environ.update(TRACKIO_DIR=str(folder), HF_HUB_OFFLINE="1")
    import trackio

    trackio.init(project="p", name="base", config={"lr": 0.1, "seed": 7})
    for step in range(STEPS):
        train, val = losses(step)
        trackio.log({"train/loss": train, "val": {"loss": val}, "hole": float("nan")})
    trackio.finish()


def wandb_offline(folder: Path) -> None:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off")
    import wandb

    run = wandb.init(project="p", name="base", dir=str(folder), config={"lr": 0.1, "seed": 7})
    for step in range(STEPS):
        train, val = losses(step)
        run.log({"train/loss": train, "val/loss": val})
    run.finish()


def lightning_csv(folder: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(str(folder), name="", version="")
    logger.log_hyperparams({"lr": 0.1, "seed": 7})
    for step in range(STEPS):
        train, val = losses(step)
        logger.log_metrics({"train_loss": train, "epoch": step // 2}, step)
        logger.log_metrics({"val_loss": val, "epoch": step // 2}, step)
    logger.save()


def transformers_state(folder: Path) -> None:
    from transformers import TrainerState

    state = TrainerState(max_steps=STEPS, num_train_epochs=1, train_batch_size=8)
    for step in range(STEPS):
        train, val = losses(step)
        state.log_history.append({"loss": train, "learning_rate": 0.1, "epoch": step / STEPS, "step": step})
        state.log_history.append({"eval_loss": val, "eval_runtime": 1.5, "epoch": step / STEPS, "step": step})
    state.log_history.append({"train_runtime": 9.0, "train_loss": 0.99, "step": STEPS - 1})
    state.global_step, state.num_input_tokens_seen = STEPS - 1, 4096
    for name in ("checkpoint-3", f"checkpoint-{STEPS - 1}"):
        (folder / name).mkdir()
        state.save_to_json(str(folder / name / "trainer_state.json"))
    (folder / "args.json").write_text('{"seed": 7, "learning_rate": 0.1}')


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if kind.startswith("mlflow"):
        mlflow_store(f"sqlite:///{folder}/mlflow.db" if kind == "mlflow-db" else f"file:{folder}/mlruns")
        return
    makers = {"trackio": trackio_project, "wandb": wandb_offline, "lightning": lightning_csv}
    makers |= {"tensorboard": tensorboard, "tensors": tensors, "transformers": transformers_state}
    makers[kind](folder)


if __name__ == "__main__":
    main()
