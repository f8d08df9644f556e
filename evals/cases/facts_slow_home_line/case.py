"""Tools that everybody knows, in the versions of this year: rsync, OpenSSH, the Hub's client."""

from __future__ import annotations

from worlds import quiz, sheet

_RSYNC = "rsync_upstream_release_of_this_year_from_which_no_known_hole_lets_a_hostile_box_harm_my_pull"
_HALF = "hf_hub_version_from_which_a_killed_hf_download_starts_the_half_file_again"
_OPENSSH = r"(?:openssh)?[ _]*"  # a version may come with what it is a version of
SSH = {
    _RSYNC: ("3.5.0", r"of a pulling rsync before ([\d.]+\d) \(", r"(?:rsync )?v?3\.5(?:\.0)?"),
    "rsync_of_a_current_mac_accepts_append_verify": (False, r"it rejects `--append-verify`"),
    "rsync_append_on_a_rewritten_file_of_the_same_size": (
        "skips it with exit 0",
        r"of the same size it does nothing and exits 0",
    ),
    "openssh_version_from_which_scp_and_sftp_no_longer_open_a_control_master_themselves": (
        "10.0",
        r"From OpenSSH ([\d.]+), scp and sftp no longer open a master",
        _OPENSSH + r"10(?:\.0(?:p1)?)?",
    ),
    "openssh_version_from_which_ssh_warns_about_servers_without_post_quantum_key_exchange": (
        "10.1",
        r"OpenSSH ([\d.]+) and later print `\*\* WARNING: connection is not using a post-quantum",
        _OPENSSH + r"10\.1(?:p1)?",
    ),
    "sshd_option_that_locks_my_address_out_after_failed_logins_without_any_extra_software": (
        "PerSourcePenalties",
        r"\((PerSourcePenalties)\)",
    ),
}
CHINA = {
    "huggingface_cli_download_of_today": ("command not found", r"`(command not found)` since huggingface_hub 2"),
    _HALF: ("1.18", r"from ([\d.]+) on a killed download starts that file again", r"[\w ]*v?1\.18(?:\.0)?"),
    "hf_variable_that_turns_xet_off": ("HF_HUB_DISABLE_XET", r"`(HF_HUB_DISABLE_XET)=1`"),
    "hf_variable_for_the_fast_mode_that_replaced_HF_HUB_ENABLE_HF_TRANSFER": (
        "HF_XET_HIGH_PERFORMANCE",
        r"`(HF_XET_HIGH_PERFORMANCE)=1` is the fast mode",
    ),
}

CASE = sheet.case(
    {"references/run-remote/ssh_transport.md": SSH, "references/run-remote/china-network.md": CHINA},
    {_RSYNC: "3.4.1", _HALF: "0.30", "huggingface_cli_download_of_today": "warns and works"},
    route="pull results, push code, stop the meter; ssh, rsync or scp trouble",
    minutes=6,
    commands=12,
    make=quiz.note("todo.txt", "sync.sh: rsync --append; models: huggingface-cli download via mirror\n"),
    held_out=True,
    expected="Ten behaviours of rsync, OpenSSH and the Hub's client as of this year.",
)
