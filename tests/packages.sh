# Sourced by the scripts that install what tests and builds need: Debian's packages, a Python with `venv`, packages of npm.
# shellcheck shell=bash

# How long another package manager may hold its locks.
PACKAGE_LOCK_SECS=${PACKAGE_LOCK_SECS:-600}

# Runs apt-get as root and waits while its locks are held. Its own option covers the locks of dpkg; `apt-get update` and
# the download folder have others, for which it fails at once, so that is tried again.
apt_get() {
  local as_root="" output waiting="" deadline=$((SECONDS + PACKAGE_LOCK_SECS))
  [ "$(id -u)" = 0 ] || as_root="sudo"
  until output=$($as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
    apt-get -o DPkg::Lock::Timeout="$PACKAGE_LOCK_SECS" -qq "$@" 2>&1); do
    if ! grep -q 'Could not get lock\|Unable to lock\|Unable to acquire the dpkg' <<<"$output" || [ "$SECONDS" -ge "$deadline" ]; then
      printf 'apt-get %s failed:\n%s\n' "$*" "$output" >&2
      return 1
    fi
    [ -n "$waiting" ] || printf 'waiting for another package manager: %s\n' "$(grep -m 1 lock <<<"$output")" >&2
    waiting=1
    sleep 1
  done
}

# Installs packages of Debian; options of `apt-get install` may stand among them.
get_packages() {
  apt_get update
  apt_get install -y "$@"
}

need_python() {
  python3 -c 'import ensurepip, venv' 2>/dev/null || get_packages --no-install-recommends python3 python3-venv
}

# Installs what the package-lock.json in folder $1 says into $2, once for each state of it.
install_npm() {
  local from=$1 to=$2
  # Addresses of a registry would tie the lock file to one place.
  if grep -q '"resolved"' "$from/package-lock.json"; then
    echo "$from/package-lock.json names download addresses; run npm install there with omit-lockfile-registry-resolved" >&2
    return 1
  fi
  { command -v node && command -v npm; } >/dev/null || get_packages --no-install-recommends nodejs npm
  cmp -s "$from/package-lock.json" "$to/installed.json" && return 0
  rm -rf "$to"
  mkdir -p "$to"
  cp "$from/package.json" "$from/package-lock.json" "$to/"
  npm ci --prefix "$to" --ignore-scripts --no-audit --no-fund --silent
  # Last, so that an interrupted installation starts again.
  cp "$from/package-lock.json" "$to/installed.json"
}
