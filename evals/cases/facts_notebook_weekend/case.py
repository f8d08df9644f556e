"""Colab's own command line is of 2026: what its exit codes hide, and what Kaggle's hide too."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

TRUTH: dict[str, Any] = {
    "colab_exec_gives_up_after_seconds_without_output_by_default": 30,
    "colab_exec_exit_code_when_train_py_raised": 0,
    "colab_run_exit_code_when_the_script_did_sys_exit_3": 3,
    "colab_stop_exit_code_when_this_machine_does_not_know_the_name": 0,
    "colab_cli_keeps_an_idle_runtime_alive_for_at_most_hours": 24,
    "colab_idle_runtime_without_that_ends_after_about_minutes": 90,
    "colab_ssh_flag_that_makes_it_a_ProxyCommand_for_rsync": "--proxy-mode",
    "colab_ssh_refuses_keys_of_type": "rsa",
    "colab_last_5_entries_of_the_log_of_session_night": "colab log -s night -n 5",
    "colab_what_is_still_burning_units": "colab sessions",
    "kaggle_kernels_push_exit_code_after_it_printed_kernel_push_error": 0,
    "kaggle_gpu_hours_left_this_week": "kaggle quota",
    "kaggle_log_of_lab/night": "kaggle kernels logs lab/night",
    "kaggle_cli_can_stop_a_running_kernel": False,
}


def look_up(box: Box) -> dict[str, Any]:
    every = facts.Profile(box, "generic-ssh")
    colab, kaggle = (facts.Profile(box, "generic-ssh", name) for name in ("colab", "kaggle"))
    log = every.word((), r"`(colab log -s <name> -n 5)`").replace("<name>", "night")
    logs = kaggle.word(("verbs", "watch"), r"(kaggle kernels logs <id>)").replace("<id>", "lab/night")
    return dict(
        zip(
            TRUTH,
            (
                every.number((), r"`colab exec` and `colab run` is (\d+) s without output"),
                every.number((), r"`exec` ends with (\d) also when the script raised"),
                3 if every.says((), r"`colab run` passes the script's exit code on") else None,
                every.number((), r"Session '<name>' not found.`, exit (\d)"),
                colab.number(("auto_release",), r"keeps off for (\d+) h"),
                colab.number(("auto_release",), r"after about (\d+) minutes"),
                every.word((), r"`colab ssh (--[\w-]+) -s <name>` is a ProxyCommand"),
                every.word((), r"(\w+) is refused\)").lower(),
                log,
                colab.value("meter", "list"),
                every.number((), r"`kernels push` exits (\d)"),
                kaggle.value("meter", "list").split(";")[0],
                logs,
                not kaggle.says(("verbs", "down"), r"no verb that stops a running kernel"),
            ),
            strict=True,
        )
    )


def verify(box: Box) -> list[str]:
    """Longer names of options and a command that shows more are fine."""
    answer = box.read(quiz.FORM)
    log, logs = "colab_last_5_entries_of_the_log_of_session_night", "kaggle_log_of_lab/night"
    hours, burning = "kaggle_gpu_hours_left_this_week", "colab_what_is_still_burning_units"
    checks = {
        log: quiz.command(answer.get(log), "colab log", "-s night|--session night", "-n 5|-n5"),
        logs: quiz.command(answer.get(logs), "kaggle kernels logs", "lab/night"),
        hours: quiz.command(answer.get(hours), "kaggle quota"),
        burning: quiz.command(answer.get(burning), "colab sessions"),
        "colab_ssh_refuses_keys_of_type": "rsa" in str(answer.get("colab_ssh_refuses_keys_of_type")).lower(),
    }
    return quiz.settled(answer, TRUTH, checks)


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/generic-ssh.md",),
    minutes=5,
    commands=10,
    make=quiz.note("crontab.txt", "0 22 * * 5 ./kaggle_night.sh && ./colab_night.sh || mail -s failed me\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        colab_exec_gives_up_after_seconds_without_output_by_default=600,
        colab_exec_exit_code_when_train_py_raised=1,
        colab_stop_exit_code_when_this_machine_does_not_know_the_name=1,
        kaggle_gpu_hours_left_this_week="kaggle config view",
    ),
    expected="Fourteen facts about two command lines whose exit code 0 does not mean that it worked.",
)
