"""A spot fleet over five providers: this year's notices, and what comes back or bills on by itself."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz, sheet
from worlds.sheet import Fact

SPOT, SSH, VAST = "references/run-remote/spot-resilience.md", "profiles/generic-ssh.md", "profiles/vastai.md"
SHEET: sheet.Sheet = {
    "gcp_flag_at_creation_for_the_longest_preemption_notice": Fact(
        "--preemption-notice-duration=120s",
        SPOT,
        r"made with `(--preemption-notice-duration=120s)` \(0 or 120, at creation",
        (r"--preemption-notice-duration[= ]\"?(120s?|2m)\"?",),
    ),
    "gcp_seconds_from_that_notice_to_off": Fact(
        150, SPOT, r"up to 30 s, best effort; made with .{90,150}: 120 s before these"
    ),
    "gcp_the_longer_notice_shows_in": Fact("metadata", SPOT, r"only this shows the 120 s", (r"(the )?metadata.*",)),
    "gke_seconds_our_own_pods_get_by_default": Fact(15, SPOT, r"GKE spot \| (\d+) s for your pods of 30 s"),
    "gke_longest_period_in_all_that_a_node_pool_can_be_set_to_seconds": Fact(
        120, SPOT, r"up to (\d+) s in all by node pool"
    ),
    "gke_control_plane_from_which_a_standard_pool_can": Fact(
        "1.35", SPOT, r"from GKE ([\d.]+)\.0-gke", (r"(gke )?v?1\.35(\.0)?(-gke\.\d+)?( and later|\+)?",)
    ),
    "azure_first_scheduled_events_call_may_take_minutes": Fact(
        2, SPOT, r"the first call enables it, may take (\d+) min"
    ),
    "azure_after_that_first_call_events_come_within_minutes": Fact(5, SPOT, r"and events come within (\d+): poll"),
    "azure_goes_silent_again_after_hours_without_a_call": Fact(24, SPOT, r"off again after (\d+) h without a call"),
    "aws_hibernating_instance_still_has_2_minutes_after_the_notice": Fact(
        False, SSH, r"a notice but no 120 s when it hibernates"
    ),
    "vast_create_from_a_bid_offer_without_a_price_rents": Fact(
        "on demand", VAST, r"rents \*\*(on demand)\*\* at the full price unless `--bid_price`", (r"on[- _]?demand",)
    ),
    "vast_outbid_instance_comes_back_by_itself_when_our_bid_wins_again": Fact(
        True, VAST, r"it resumes by itself when its bid wins"
    ),
    "dstack_idle_instance_of_a_fleet_is_kept_by_default_days": Fact(
        3, SSH, r"idle instances for (\d+) days by default"
    ),
    "dstack_idle_duration_also_ends_instances_below_nodes.min": Fact(
        False, SSH, r"idle_duration, and only above nodes\.min"
    ),
}

CASE = Case(
    route='save, resume, "does not load", loss jumps after a resume',
    reads=(SPOT, SSH, VAST),
    minutes=6,
    commands=12,
    make=quiz.note(
        "fleet.txt", "gcp 4x l4 spot\ngke pool spot\nazure nc a100 spot\naws g6 spot, 2 hibernate\nvast bid\n"
    ),
    verify=sheet.verifier(SHEET),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        sheet.truth(SHEET),
        gcp_flag_at_creation_for_the_longest_preemption_notice="--instance-termination-action=STOP",
        gcp_seconds_from_that_notice_to_off=30,
        gke_longest_period_in_all_that_a_node_pool_can_be_set_to_seconds=30,
        azure_after_that_first_call_events_come_within_minutes=2,
    ),
    expected="Fourteen rules of notices and leftovers, half of them of this year.",
)
