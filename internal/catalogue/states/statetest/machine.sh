# Makes folders of the machine private to the mount namespace that this runs
# in: sh machine.sh begin|keep|reset FOLDER. What is private lies below FOLDER;
# nothing outside of it changes. reset makes it as it was when it was kept.
# It is in memory if that can be had: a disk takes twenty times as long, for it is
# made anew for each case, and programs like useradd wait until a file is on it.
set -e
D=$2
case $1 in
begin)
	for p in at cache kept; do
		mkdir -p "$D/$p"
		[ -n "$BRINE_STATETEST_DISK" ] || mount -t tmpfs -o mode=755 tmpfs "$D/$p" 2>/dev/null || :
	done
	E=$D/etc
	mkdir -p "$E/default" "$E/skel" "$E/apt" "$E/dpkg"
	for f in alternatives ld.so.cache ld.so.conf ld.so.conf.d pam.d pam.conf security; do
		[ ! -e /etc/$f ] || cp -a /etc/$f "$E/"
	done
	cat >"$E/passwd" <<'EOF'
root:x:0:0:root:/srv:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
EOF
	cat >"$E/group" <<'EOF'
root:x:0:
daemon:x:1:
bin:x:2:
adm:x:4:
tty:x:5:
mail:x:8:
sudo:x:27:
audio:x:29:
users:x:100:
nogroup:x:65534:
EOF
	sed 's/:.*/:*:19000:0:99999:7:::/' "$E/passwd" >"$E/shadow"
	sed 's/:.*/:*::/' "$E/group" >"$E/gshadow"
	chmod 600 "$E/shadow" "$E/gshadow"
	cat >"$E/login.defs" <<'EOF'
MAIL_DIR /var/mail
UID_MIN 1000
UID_MAX 60000
GID_MIN 1000
GID_MAX 60000
SYS_UID_MIN 100
SYS_UID_MAX 999
SYS_GID_MIN 100
SYS_GID_MAX 999
USERGROUPS_ENAB yes
ENCRYPT_METHOD SHA512
PASS_MAX_DAYS 99999
PASS_MIN_DAYS 0
PASS_WARN_AGE 7
HOME_MODE 0700
EOF
	echo HOME=/srv >"$E/default/useradd"
	printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\n' >"$E/nsswitch.conf"
	printf '127.0.0.1\tlocalhost\n' >"$E/hosts"
	printf '/bin/sh\n/bin/bash\n' >"$E/shells"
	: >"$E/fstab"
	for p in etc opt srv run usr/local/bin var/lib/dpkg var/lib/apt var/lib/systemd var/cache/apt var/spool var/mail var/log; do
		[ -d /$p ] || continue
		at=$D/at/$(echo $p | tr / -)
		mkdir -p "$at"
		mount --bind "$at" /$p
	done
	cp -a "$E/." /etc/
	mkdir -p /var/spool/cron/crontabs /run/lock /srv/salt /opt/bin
	chmod 755 /etc /opt /srv /run /usr/local/bin
	;;
keep)
	cp -a "$D/at/." "$D/kept/"
	;;
reset)
	while read -r _ dir _; do
		dir=$(printf %b "$dir") # a blank is \040
		# Mounts of the real machine are hidden, but listed.
		case $dir in /srv/* | /opt/*) ! mountpoint -q "$dir" || umount "$dir" ;; esac
	done </proc/mounts
	find "$D/at" -mindepth 2 -delete
	cp -a "$D/kept/." "$D/at/"
	;;
esac
