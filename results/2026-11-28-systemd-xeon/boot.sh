set -e
mount --make-rprivate /
cd "$FOLDER/mnt"
mount -t tmpfs -o mode=0755 tmpfs "$FOLDER/mnt"
cd "$FOLDER/mnt"
mkdir usr etc proc sys dev run tmp var old
for link in bin sbin lib lib64; do ln -s "usr/$link" "$link"; done
mount --bind -o ro /usr usr
for folder in "$FOLDER" "$BIN"; do mkdir -p ".$folder"; mount --bind "$folder" ".$folder"; done
: > etc/machine-id
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 0666 "dev/${device%:*}" c 1 "${device#*:}"
done
mkdir dev/shm dev/net
mknod -m 0666 dev/net/tun c 10 200
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
pivot_root . old
umount -l old
exec env -i container=other SYSTEMD_UNIT_PATH="$FOLDER/units" PATH=/usr/sbin:/usr/bin \
/lib/systemd/systemd --system --unit=trial.service
