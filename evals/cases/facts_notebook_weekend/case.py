"""Colab's own command line is of 2026: what its exit codes hide, and what Kaggle's hide too."""

from __future__ import annotations

from trials.case import Box, Case
from worlds import quiz, sheet
from worlds.sheet import Fact

PROFILE = "profiles/generic-ssh.md"
SHEET: sheet.Sheet = {
    "colab_exec_gives_up_after_seconds_without_output_by_default": Fact(
        30, PROFILE, r"`colab exec` and `colab run` is (\d+) s without output"
    ),
    "colab_exec_exit_code_when_train_py_raised": Fact(0, PROFILE, r"`exec` ends with (\d) also when the script raised"),
    "colab_run_exit_code_when_the_script_did_sys_exit_3": Fact(
        3, PROFILE, r"`colab run` passes the script's exit code on"
    ),
    "colab_stop_exit_code_when_this_machine_does_not_know_the_name": Fact(
        0, PROFILE, r"Session '<name>' not found.`, exit (\d)"
    ),
    "colab_cli_of_today_keeps_an_idle_runtime_alive": Fact(False, PROFILE, r"the CLI keeps none alive"),
    "colab_idle_runtime_ends_after_about_minutes": Fact(90, PROFILE, r"after about (\d+) minutes"),
    "colab_ssh_flag_that_makes_it_a_ProxyCommand_for_rsync": Fact(
        "--proxy-mode", PROFILE, r"`colab ssh (--[\w-]+) -s <name>` is a ProxyCommand"
    ),
    "colab_ssh_refuses_keys_of_type": Fact("rsa", PROFILE, r"RSA is refused\)"),
    "colab_last_5_entries_of_the_log_of_session_night": Fact(
        "colab log -s night -n 5", PROFILE, r"`colab log -s <name> -n 5`"
    ),
    "colab_what_is_still_burning_units": Fact("colab sessions", PROFILE, r'list: \{value: "(colab sessions);'),
    "kaggle_kernels_push_exit_code_after_it_printed_kernel_push_error": Fact(0, PROFILE, r"`kernels push` exits (\d)"),
    "kaggle_gpu_hours_left_this_week": Fact("kaggle quota", PROFILE, r'list: \{value: "(kaggle quota);'),
    "kaggle_log_of_lab/night": Fact("kaggle kernels logs lab/night", PROFILE, r"kaggle kernels logs <id>"),
    "kaggle_cli_can_stop_a_running_kernel": Fact(False, PROFILE, r"no verb that stops a running kernel"),
}
TRUTH = sheet.truth(SHEET)


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
    reads=sheet.pages(SHEET),
    minutes=5,
    commands=10,
    make=quiz.note("crontab.txt", "0 22 * * 5 ./kaggle_night.sh && ./colab_night.sh || mail -s failed me\n"),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        TRUTH,
        colab_exec_gives_up_after_seconds_without_output_by_default=600,
        colab_exec_exit_code_when_train_py_raised=1,
        colab_cli_of_today_keeps_an_idle_runtime_alive=True,
        colab_stop_exit_code_when_this_machine_does_not_know_the_name=1,
        kaggle_gpu_hours_left_this_week="kaggle config view",
    ),
    expected="Fourteen facts about two command lines whose exit code 0 does not mean that it worked.",
)
