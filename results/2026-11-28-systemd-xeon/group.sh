#!/bin/sh
# systemd restarts `echo` after each kill, in namespaces of its own: FOLDER BIN
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$here/mnt"
export FOLDER="$here" BIN="$1"
mount -t cgroup2 none "$here/mnt"
group="$here/mnt/outboard-systemd-$$"
mkdir "$group"
status=0
(echo 0 > "$group/cgroup.procs"
 exec unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup sh "$here/boot.sh") || status=$?
find "$group" -depth -type d -exec rmdir {} +
umount "$here/mnt"
exit $status
