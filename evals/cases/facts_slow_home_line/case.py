"""Tools that everybody knows, in the versions of this year: rsync, OpenSSH, the Hub's client."""

from __future__ import annotations

import re
from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

READS = ("references/run-remote/ssh_transport.md", "references/run-remote/china-network.md")
_RSYNC = "rsync_upstream_release_of_this_year_from_which_no_known_hole_lets_a_hostile_box_harm_my_pull"
_VERSIONS = (
    _RSYNC,
    "openssh_version_from_which_scp_and_sftp_no_longer_open_a_control_master_themselves",
    "openssh_version_from_which_ssh_warns_about_servers_without_post_quantum_key_exchange",
    "hf_hub_version_from_which_a_killed_hf_download_starts_the_half_file_again",
)
TRUTH: dict[str, Any] = {
    _RSYNC: "3.5.0",
    "rsync_of_a_current_mac_accepts_append_verify": False,
    "rsync_append_on_a_rewritten_file_of_the_same_size": "skips it with exit 0",
    _VERSIONS[1]: "10.0",
    _VERSIONS[2]: "10.1",
    "sshd_option_that_locks_my_address_out_after_failed_logins_without_any_extra_software": "PerSourcePenalties",
    "huggingface_cli_download_of_today": "warns and does nothing",
    _VERSIONS[3]: "1.18",
    "hf_variable_that_turns_xet_off": "HF_HUB_DISABLE_XET",
    "hf_host_the_bytes_come_from_with_xet_even_if_HF_ENDPOINT_is_a_mirror": "cas-server.xethub.hf.co",
    "hf_variable_for_the_fast_mode_that_replaced_HF_HUB_ENABLE_HF_TRANSFER": "HF_XET_HIGH_PERFORMANCE",
}


def look_up(box: Box) -> dict[str, Any]:
    word = facts.said
    ssh, china = (facts.page(box, name) for name in READS)
    return dict(
        zip(
            TRUTH,
            (
                word(ssh, r"of a pulling rsync before ([\d.]+\d) \("),
                not word(ssh, r"it rejects `--append-verify`"),
                "skips it with exit 0" if word(ssh, r"of the same size it does nothing and exits 0") else None,
                word(ssh, r"From OpenSSH ([\d.]+), scp and sftp no longer open a master"),
                word(ssh, r"OpenSSH ([\d.]+) and later print `\*\* WARNING: connection is not using a post-quantum"),
                word(ssh, r"\((PerSourcePenalties)\)"),
                "warns and does nothing" if word(china, r"prints a warning and does nothing: `hf download`") else None,
                word(china, r"from ([\d.]+) on a killed download starts that file again"),
                word(china, r"`(HF_HUB_DISABLE_XET)=1`"),
                word(china, r"the CAS host named in it \(`([\w.-]+)`\)"),
                word(china, r"`(HF_XET_HIGH_PERFORMANCE)=1` is the fast mode"),
            ),
            strict=True,
        )
    )


def verify(box: Box) -> list[str]:
    """A version may come with what it is a version of, or without its last zero."""
    answer = box.read(quiz.FORM)
    checks = {}
    for key in _VERSIONS:
        said = re.search(r"\d+(?:\.\d+)+", str(answer.get(key)))
        checks[key] = bool(said) and said[0].removesuffix(".0") == TRUTH[key].removesuffix(".0")  # type: ignore[index]
    ssh10 = str(answer.get(_VERSIONS[1])).strip().lower().removeprefix("openssh").strip(" _")
    checks[_VERSIONS[1]] = ssh10 in ("10", "10.0", "10.0p1")
    return quiz.settled(answer, TRUTH, checks)


CASE = Case(
    route="pull results, push code, stop the meter; ssh, rsync or scp trouble",
    reads=READS,
    minutes=6,
    commands=12,
    make=quiz.note("todo.txt", "sync.sh: rsync --append; models: huggingface-cli download via mirror\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        **{_RSYNC: "3.4.1", _VERSIONS[3]: "0.30"},
        huggingface_cli_download_of_today="warns and works",
    ),
    held_out=True,
    expected="Eleven behaviours of rsync, OpenSSH and the Hub's client as of this year.",
)
