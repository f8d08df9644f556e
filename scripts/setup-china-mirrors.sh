#!/bin/sh
# RUN · points pip, uv, conda, apt, Hugging Face and ModelScope at mirrors inside mainland China, and back
#
#     scripts/setup-china-mirrors.sh --dry-run     what it would change
#     scripts/setup-china-mirrors.sh               change it; safe to repeat
#     scripts/setup-china-mirrors.sh --undo        every file as it was
#
# Says each file it changes and keeps the original. A setting that is already there is yours and stays. It never sets a
# proxy, and says which ones are on: a proxy left on for the training process is the usual way to a slow or hanging run.
# Exit codes: 0 fine · 1 findings (a proxy is on, a file was not restored) · 2 usage · 3 the environment lacks something.
set -eu

pip_index=https://mirrors.tuna.tsinghua.edu.cn/pypi/web/simple
conda_base=https://mirrors.tuna.tsinghua.edu.cn/anaconda
apt_host=mirrors.tuna.tsinghua.edu.cn
hf_endpoint=https://hf-mirror.com
modelscope_domain=www.modelscope.cn

begin='# >>> china mirrors (setup-china-mirrors.sh --undo removes this) >>>'
end='# <<< china mirrors <<<'

usage() {
    cat <<EOF
Usage: setup-china-mirrors.sh [--dry-run] [--undo]

  Point pip, uv, conda, apt, Hugging Face and ModelScope at mirrors in mainland China.

  --dry-run  Say what would change, and change nothing.
  --undo     Put every changed file back.
  --help     Show this message and exit.

  RGT_APT_DIR names another apt folder than /etc/apt.

  Exit codes: 0 fine, 1 findings, 2 usage or bad input, 3 the environment lacks something.
EOF
}

fail() {
    code=$1
    shift
    printf 'error: %s\n' "$*" >&2
    exit "$code"
}

dry=0
undo=0
for word in "$@"; do
    case $word in
    --dry-run) dry=1 ;;
    --undo) undo=1 ;;
    --help | -h)
        usage
        exit 0
        ;;
    *) fail 2 "no option $word; see --help" ;;
    esac
done

if [ ! -d "${HOME:-}" ] || [ ! -w "$HOME" ]; then
    fail 3 "HOME (${HOME:-unset}) is not a folder that can be written; set it to the home of the user who trains"
fi
command -v sha256sum >/dev/null || fail 3 "sha256sum is not installed; it comes with coreutils"
config=${XDG_CONFIG_HOME:-$HOME/.config}
state=${XDG_STATE_HOME:-$HOME/.local/state}/rgt-china-mirrors
apt=${RGT_APT_DIR:-/etc/apt}
env_file=$config/rgt/china-mirrors.sh
status=0

say() {
    if [ "$dry" = 1 ]; then printf 'would %s\n' "$*"; else printf '%s\n' "$*"; fi
}

digest() { sha256sum <"$1" | cut -d' ' -f1; }

# the file behind a link: a renamed copy must not replace the link itself
real() { readlink -f -- "$1"; }

# put FILE NEW: NEW's text becomes FILE; mode and link are kept, a reader never sees half of it
put() {
    target=$1
    [ -e "$1" ] && target=$(real "$1")
    if ! { mkdir -p -- "$(dirname -- "$target")" && { [ ! -e "$target" ] || cp -p -- "$target" "$target.rgt-new"; } &&
        cat -- "$2" >"$target.rgt-new"; }; then
        rm -f -- "$target.rgt-new"
        fail 3 "cannot write $target; it is as it was"
    fi
    mv -- "$target.rgt-new" "$target"
}

# change FILE NEW WHAT: back the original up, note it, replace it; a kill in between is undone like a finished change
change() {
    say "change $1: $3"
    [ "$dry" = 1 ] && return 0
    mkdir -p -- "$state"
    name=$(printf '%s' "$1" | tr '/ ' '__')
    touch -- "$state/changes"
    origin=$(awk -F '\t' -v file="$1" '$4 == file { print $1 }' "$state/changes")
    # changed before: the first original is the one to go back to
    if [ -z "$origin" ] && [ -e "$1" ]; then
        cp -p -- "$1" "$state/$name"
        origin=old
    fi
    {
        awk -F '\t' -v file="$1" '$4 != file' "$state/changes"
        printf '%s\t%s\t%s\t%s\n' "${origin:-new}" "$(digest "$2")" "$name" "$1"
    } >"$state/changes.new"
    mv -- "$state/changes.new" "$state/changes"
    put "$1" "$2"
}

kept() { printf 'kept %s: %s\n' "$1" "$2"; }

# --- what is changed -----------------------------------------------------------------------------------------------

set_pip() {
    file=$config/pip/pip.conf
    if [ -f "$HOME/.pip/pip.conf" ]; then file=$HOME/.pip/pip.conf; fi
    if [ -f "$file" ] && grep -Eq '^[[:space:]]*index-url[[:space:]]*[=:]' "$file"; then
        kept "$file" "it names an index-url"
        return 0
    fi
    if [ -f "$file" ] && grep -q '^\[global\]' "$file"; then
        awk -v line="index-url = $pip_index" '{ print } /^\[global\]/ && !done { print line; done = 1 }' "$file" >"$work"
    else
        { [ -f "$file" ] && awk 1 "$file"; printf '[global]\nindex-url = %s\n' "$pip_index"; } >"$work"
    fi
    change "$file" "$work" "index-url = $pip_index"
}

set_conda() {
    file=$HOME/.condarc
    if [ -f "$file" ] && grep -Eq '^(channels|default_channels|custom_channels|channel_alias)[[:space:]]*:' "$file"; then
        kept "$file" "it names channels"
        return 0
    fi
    {
        [ -f "$file" ] && awk 1 "$file"
        cat <<EOF
channels: [defaults]
show_channel_urls: true
default_channels:
  - $conda_base/pkgs/main
  - $conda_base/pkgs/r
custom_channels:
  conda-forge: $conda_base/cloud
  pytorch: $conda_base/cloud
EOF
    } >"$work"
    change "$file" "$work" "channels from $conda_base"
}

set_apt() {
    for file in "$apt/sources.list" "$apt"/sources.list.d/*.list "$apt"/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        # only the distribution's own hosts; a vendor's repository is not mirrored
        sed -E -e "s#//([a-z]{2}\.)?(archive|security|ports)\.ubuntu\.com/#//$apt_host/#" \
            -e "s#//(deb|security|ftp\.[a-z]{2})\.debian\.org/#//$apt_host/#" "$file" >"$work"
        cmp -s -- "$file" "$work" && continue
        if [ "$dry" = 0 ] && [ ! -w "$file" ]; then
            kept "$file" "only root may change it"
            continue
        fi
        change "$file" "$work" "packages from $apt_host; run apt-get update"
    done
}

set_environment() {
    # Hugging Face's large files come by Xet from hosts that the mirror does not stand for; plain HTTP goes through it.
    # The mirrors stay off any proxy that an accelerator sets later, and so does this machine itself.
    cat >"$work" <<EOF
export UV_DEFAULT_INDEX=$pip_index
export HF_ENDPOINT=$hf_endpoint
export HF_HUB_DISABLE_XET=1
export MODELSCOPE_DOMAIN=$modelscope_domain
case ,\${no_proxy:-}, in
*,$apt_host,*) ;;
*) no_proxy=localhost,127.0.0.1,::1,$apt_host,${hf_endpoint#https://},$modelscope_domain\${no_proxy:+,\$no_proxy} ;;
esac
NO_PROXY=\$no_proxy
export no_proxy NO_PROXY
EOF
    if [ -f "$env_file" ] && cmp -s -- "$env_file" "$work"; then
        kept "$env_file" "already written"
    else
        change "$env_file" "$work" "HF_ENDPOINT, HF_HUB_DISABLE_XET, UV_DEFAULT_INDEX, MODELSCOPE_DOMAIN, no_proxy"
    fi
    add_block "$HOME/.bashrc"
    add_block "$HOME/.profile"
}

# At the top: most .bashrc files return at once in a shell that nobody types into, and that is where jobs start.
add_block() {
    if [ -f "$1" ] && grep -qF -- "$begin" "$1"; then
        kept "$1" "already reads $env_file"
        return 0
    fi
    say "change $1: reads $env_file"
    [ "$dry" = 1 ] && return 0
    {
        printf '%s\nif [ -r "%s" ]; then . "%s"; fi\n%s\n' "$begin" "$env_file" "$env_file" "$end"
        [ -f "$1" ] && cat -- "$1"
    } >"$work"
    put "$1" "$work"
}

# --- and back ------------------------------------------------------------------------------------------------------

remove_block() {
    { [ -f "$1" ] && grep -qF -- "$begin" "$1"; } || return 0
    if ! grep -qxF -- "$end" "$1"; then
        printf 'not restored %s: the line "%s" is gone; delete the block by hand\n' "$1" "$end"
        status=1
        return 0
    fi
    say "restore $1"
    [ "$dry" = 1 ] && return 0
    sed -e '/^# >>> china mirrors /,/^# <<< china mirrors <<<$/d' "$1" >"$work"
    if [ -s "$work" ]; then put "$1" "$work"; else rm -- "$(real "$1")"; fi
}

restore() {
    while IFS='	' read -r origin sum name file; do
        if [ ! -e "$file" ]; then
            say "leave $file: it is gone already"
        elif [ "$origin" = old ] && cmp -s -- "$file" "$state/$name"; then
            say "leave $file: it is as it was"
        elif [ "$(digest "$file")" != "$sum" ]; then
            printf 'not restored %s: it was changed since; the original is %s\n' "$file" "$([ "$origin" = old ] && echo "$state/$name" || echo "no file")"
            status=1
            [ "$dry" = 1 ] || printf '%s\t%s\t%s\t%s\n' "$origin" "$sum" "$name" "$file" >>"$state/changes.left"
        elif [ "$origin" = new ]; then
            say "remove $file"
            [ "$dry" = 1 ] || rm -- "$file"
        elif [ ! -w "$file" ]; then
            printf 'not restored %s: only root may change it\n' "$file"
            status=1
            [ "$dry" = 1 ] || printf '%s\t%s\t%s\t%s\n' "$origin" "$sum" "$name" "$file" >>"$state/changes.left"
        else
            say "restore $file"
            [ "$dry" = 1 ] || put "$file" "$state/$name"
        fi
    done <"$state/changes"
    [ "$dry" = 1 ] && return 0
    if [ -f "$state/changes.left" ]; then mv -- "$state/changes.left" "$state/changes"; else rm -r -- "$state"; fi
}

# --- proxies: never set here, always shown -------------------------------------------------------------------------

proxies() {
    for name in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; do
        value=$(printenv "$name" || true)
        [ -n "$value" ] && printf 'environment: %s=%s\n  fix: unset %s\n' "$name" "$value" "$name"
    done
    for file in "$HOME/.bashrc" "$HOME/.profile" "$HOME/.bash_profile" "$HOME/.zshrc" "$config/pip/pip.conf" \
        "$HOME/.pip/pip.conf" "$HOME/.condarc" "$HOME/.wgetrc" "$HOME/.curlrc" "$HOME/.gitconfig" "$apt"/apt.conf "$apt"/apt.conf.d/*; do
        [ -f "$file" ] || continue
        grep -nEi '^[[:space:]]*(export[[:space:]]+)?((https?|all)_?proxy|proxy|proxy_servers)[[:space:]]*[=:]|^Acquire::[a-z]+::Proxy|network_turbo' \
            "$file" 2>/dev/null | while IFS= read -r line; do
            printf '%s:%s\n  fix: delete that line; set a proxy for one command only\n' "$file" "$line"
        done
    done
}

work=$(mktemp)
trap 'rm -f -- "$work"' EXIT

if [ "$undo" = 1 ]; then
    remove_block "$HOME/.bashrc"
    remove_block "$HOME/.profile"
    if [ -f "$state/changes" ]; then restore; else printf 'nothing else to undo\n'; fi
    [ "$dry" = 1 ] || printf 'open a new shell: this one keeps its variables\n'
else
    set_pip
    set_conda
    set_apt
    set_environment
    [ "$dry" = 1 ] || printf 'for this shell: . %s\nback: setup-china-mirrors.sh --undo\n' "$env_file"
fi

# a proxy's address often carries its password
found=$(proxies | sed -e 's#//[^/@ ]*@#//***@#')
if [ -n "$found" ]; then
    printf 'a proxy is on; training must not inherit it:\n%s\n' "$found"
    status=1
fi
exit "$status"
