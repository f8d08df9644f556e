"""Colab's own command line is of 2026: what its exit codes hide, and what Kaggle's hide too."""

from __future__ import annotations

from worlds import quiz, sheet

# longer names of options and a command that shows more are fine
PROFILE = {
    "colab_exec_gives_up_after_seconds_without_output_by_default": (
        30,
        r"`colab exec` and `colab run` is (\d+) s without output",
    ),
    "colab_exec_exit_code_when_train_py_raised": (0, r"`exec` ends with (\d) also when the script raised"),
    "colab_run_exit_code_when_the_script_did_sys_exit_3": (3, r"`colab run` passes the script's exit code on"),
    "colab_stop_exit_code_when_this_machine_does_not_know_the_name": (0, r"Session '<name>' not found.`, exit (\d)"),
    "colab_cli_of_today_keeps_an_idle_runtime_alive": (False, r"the CLI keeps none alive"),
    "colab_idle_runtime_ends_after_about_minutes": (90, r"after about (\d+) minutes"),
    "colab_ssh_flag_that_makes_it_a_ProxyCommand_for_rsync": (
        "--proxy-mode",
        r"`colab ssh (--[\w-]+) -s <name>` is a ProxyCommand",
    ),
    "colab_ssh_refuses_keys_of_type": ("rsa", r"RSA is refused\)", r".*rsa.*"),
    "colab_last_5_entries_of_the_log_of_session_night": (
        "colab log -s night -n 5",
        r"`colab log -s <name> -n 5`",
        r"colab log(?=.* (?:-s|--session)[ =]night\b)(?=.* -n[ =]?5\b).*",
    ),
    "colab_what_is_still_burning_units": ("colab sessions", r'list: \{value: "(colab sessions);', r"colab sessions .*"),
    "kaggle_kernels_push_exit_code_after_it_printed_kernel_push_error": (0, r"`kernels push` exits (\d)"),
    "kaggle_gpu_hours_left_this_week": ("kaggle quota", r'list: \{value: "(kaggle quota);', r"kaggle quota .*"),
    "kaggle_log_of_lab/night": (
        "kaggle kernels logs lab/night",
        r"kaggle kernels logs <id>",
        r"kaggle kernels logs(?=.* lab/night\b).*",
    ),
    "kaggle_cli_can_stop_a_running_kernel": (False, r"no verb that stops a running kernel"),
}
OLD = {
    "colab_exec_gives_up_after_seconds_without_output_by_default": 600,
    "colab_exec_exit_code_when_train_py_raised": 1,
    "colab_cli_of_today_keeps_an_idle_runtime_alive": True,
    "colab_stop_exit_code_when_this_machine_does_not_know_the_name": 1,
    "kaggle_gpu_hours_left_this_week": "kaggle config view",
}

CASE = sheet.case(
    {"profiles/generic-ssh.md": PROFILE},
    OLD,
    route="which platform, what survives, what bills?",
    minutes=5,
    commands=10,
    make=quiz.note("crontab.txt", "0 22 * * 5 ./kaggle_night.sh && ./colab_night.sh || mail -s failed me\n"),
    expected="Fourteen facts about two command lines whose exit code 0 does not mean that it worked.",
)
