"""Nine days away: which of three agents wakes up, and which changed default spoils the report."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz, sheet
from worlds.sheet import Fact

WATCH, DOMAIN = "references/run-remote/monitoring_patterns.md", "references/training/by-domain.md"
SHEET: sheet.Sheet = {
    "claude_code_/loop_ends_by_itself_after_days": Fact(7, WATCH, r"recurring ones end after (\d+) days"),
    "claude_code_/loop_makes_up_for_times_it_missed": Fact(False, WATCH, r"missed times are not made up"),
    "claude_code_cloud_schedule_smallest_interval_minutes": Fact(60, WATCH, r"cloud ones no machine \(1 h at least"),
    "claude_code_training_started_with_nohup_and_&_reliably_survives_the_end_of_the_session": Fact(
        False, WATCH, r"tracked tasks get SIGTERM when the session ends, also those started with `nohup \.\.\. &`"
    ),
    "openclaw_exec_goes_to_the_background_by_itself_after_seconds": Fact(
        10, WATCH, r"goes to the background by itself after (\d+) s \(`yieldMs`\)"
    ),
    "openclaw_exec_background_sessions_survive_a_gateway_restart": Fact(
        False, WATCH, r"sessions are in memory and lost when the gateway restarts"
    ),
    "openclaw_cron_jobs_survive_a_gateway_restart": Fact(True, WATCH, r"kept on disk, runs in the gateway"),
    "codex_exec_with_a_prompt_argument_while_its_stdin_is_an_open_pipe": Fact(
        "waits", WATCH, r"`codex exec \"<prompt>\" < /dev/null` \(without it, it waits on stdin\)"
    ),
    "codex_app_automation_in_a_git_project_works_in": Fact(
        "a new worktree", WATCH, r"each in a new worktree of a Git project", (r"(new )?worktree",)
    ),
    "transformers_5.3_report_to_default": Fact("none", DOMAIN, r"`report_to` is now `\"(none)\"`"),
    "trl_vllm_mode_default": Fact("colocate", DOMAIN, r"trl 1: `vllm_mode` defaults to `\"(\w+)\"`"),
    "trl_dpo_rpo_alpha": Fact("gone", DOMAIN, r"`rpo_alpha` is (gone)", (r"removed",)),
    "trl_packing=True_switches_padding_free_on": Fact(
        True, DOMAIN, r"`packing=True` \(strategy `bfd`, the default\) turns padding-free on by itself"
    ),
    "wandb_resumed_with_the_old_id_after_a_rollback_of_500_steps_those_500_are": Fact(
        "dropped", DOMAIN, r"resume with the old id after a roll-back: everything until the old step is (dropped)"
    ),
}

CASE = Case(
    route='how is it doing? "watch it", "tell me when", overnight',
    reads=(WATCH, DOMAIN),
    minutes=6,
    commands=12,
    make=quiz.note(
        "away.txt",
        "9 days\nlaptop: claude /loop 30m\nserver: openclaw\ncodex exec in crontab\nrun: grpo, wandb id k3x\n",
    ),
    verify=sheet.verifier(SHEET),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        sheet.truth(SHEET),
        **{"claude_code_/loop_ends_by_itself_after_days": 3, "transformers_5.3_report_to_default": "all"},
        trl_vllm_mode_default="server",
        codex_exec_with_a_prompt_argument_while_its_stdin_is_an_open_pipe="runs",
    ),
    held_out=True,
    expected="Fourteen behaviours of three agents' schedulers and of the trainers and trackers behind the report.",
)
