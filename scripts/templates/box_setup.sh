#!/bin/sh
# What a rented box needs before work, in one look. Changes nothing but two folders in the home directory; safe to repeat.
#   ssh box 'sh -s' < scripts/templates/box_setup.sh
# Exit 1 when something is lacking; each line says what and how to mend it.
set -u
lacking=0
say() { printf '%-8s %s\n' "$1" "$2"; }
lack() { say LACKING "$1"; lacking=1; }

if python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  say ok "python3: $(python3 -c 'import platform; print(platform.python_version())')"
else
  lack 'python3 3.10 or newer is not on the PATH of a plain ssh command: apt-get install python3'
fi
for tool in rsync tmux git; do
  if command -v "$tool" >/dev/null 2>&1; then say ok "$tool"; else say note "no $tool: apt-get install $tool (optional)"; fi
done

mkdir -p "$HOME/.cache/rgt" "$HOME/.config" && chmod 700 "$HOME/.config" && say ok "folders: ~/.cache/rgt ~/.config"
[ -w "$HOME" ] || lack "the home directory $HOME cannot be written"

# a login script that prints breaks rsync and sftp; run by sh -s we are such a session, so look at the files
for file in "$HOME/.bashrc" "$HOME/.profile" /etc/profile; do
  if [ -r "$file" ] && grep -Eq '^[[:space:]]*(echo|printf|neofetch|fortune|conda activate)' "$file"; then
    say note "$file prints or activates something for every session: guard it with  case \$- in *i*) ... ;; esac"
  fi
done

df -Pk "$HOME" | awk 'NR == 2 { printf "%-8s disk of %s: %d GiB free\n", "note", $6, $4 / 1048576 }'
df -Pi "$HOME" 2>/dev/null | awk 'NR == 2 && $4 ~ /^[0-9]+$/ { printf "%-8s inodes free: %s\n", "note", $4 }'
exit "$lacking"
