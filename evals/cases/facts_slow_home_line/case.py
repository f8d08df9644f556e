"""Tools that everybody knows, in the versions of this year: rsync, OpenSSH, the Hub's client."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz, sheet
from worlds.sheet import Fact

SSH, CHINA = "references/run-remote/ssh_transport.md", "references/run-remote/china-network.md"
_RSYNC = "rsync_upstream_release_of_this_year_from_which_no_known_hole_lets_a_hostile_box_harm_my_pull"
_HALF = "hf_hub_version_from_which_a_killed_hf_download_starts_the_half_file_again"
_OPENSSH = r"(?:openssh)?[ _]*"  # a version may come with what it is a version of
SHEET = {
    _RSYNC: Fact("3.5.0", SSH, r"of a pulling rsync before ([\d.]+\d) \(", (r"(?:rsync )?v?3\.5(?:\.0)?",)),
    "rsync_of_a_current_mac_accepts_append_verify": Fact(False, SSH, r"it rejects `--append-verify`"),
    "rsync_append_on_a_rewritten_file_of_the_same_size": Fact(
        "skips it with exit 0", SSH, r"of the same size it does nothing and exits 0"
    ),
    "openssh_version_from_which_scp_and_sftp_no_longer_open_a_control_master_themselves": Fact(
        "10.0", SSH, r"From OpenSSH ([\d.]+), scp and sftp no longer open a master", (_OPENSSH + r"10(?:\.0(?:p1)?)?",)
    ),
    "openssh_version_from_which_ssh_warns_about_servers_without_post_quantum_key_exchange": Fact(
        "10.1",
        SSH,
        r"OpenSSH ([\d.]+) and later print `\*\* WARNING: connection is not using a post-quantum",
        (_OPENSSH + r"10\.1(?:p1)?",),
    ),
    "sshd_option_that_locks_my_address_out_after_failed_logins_without_any_extra_software": Fact(
        "PerSourcePenalties", SSH, r"\((PerSourcePenalties)\)"
    ),
    "huggingface_cli_download_of_today": Fact(
        "command not found", CHINA, r"`(command not found)` since huggingface_hub 2"
    ),
    _HALF: Fact(
        "1.18", CHINA, r"from ([\d.]+) on a killed download starts that file again", (r"[\w ]*v?1\.18(?:\.0)?",)
    ),
    "hf_variable_that_turns_xet_off": Fact("HF_HUB_DISABLE_XET", CHINA, r"`(HF_HUB_DISABLE_XET)=1`"),
    "hf_variable_for_the_fast_mode_that_replaced_HF_HUB_ENABLE_HF_TRANSFER": Fact(
        "HF_XET_HIGH_PERFORMANCE", CHINA, r"`(HF_XET_HIGH_PERFORMANCE)=1` is the fast mode"
    ),
}

CASE = Case(
    route="pull results, push code, stop the meter; ssh, rsync or scp trouble",
    reads=sheet.pages(SHEET),
    minutes=6,
    commands=12,
    make=quiz.note("todo.txt", "sync.sh: rsync --append; models: huggingface-cli download via mirror\n"),
    verify=sheet.verifier(SHEET),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        sheet.truth(SHEET),
        **{_RSYNC: "3.4.1", _HALF: "0.30"},
        huggingface_cli_download_of_today="warns and works",
    ),
    held_out=True,
    expected="Ten behaviours of rsync, OpenSSH and the Hub's client as of this year.",
)
