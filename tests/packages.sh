# Functions for the scripts that install what tests and builds need: Debian packages, Python with `venv`, npm packages.
# shellcheck shell=bash

# How long to wait for the locks of another package manager.
PACKAGE_LOCK_SECS=${PACKAGE_LOCK_SECS:-600}

# Runs apt-get as root and waits while its locks are held. The option DPkg::Lock::Timeout covers the locks of dpkg only.
# With other locks, such as those of `apt-get update` and the download folder, apt-get fails at once and is retried.
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

# Installs Debian packages; arguments may include options of `apt-get install`.
get_packages() {
  apt_get update
  apt_get install -y "$@"
}

need_python() {
  python3 -c 'import ensurepip, venv' 2>/dev/null || get_packages --no-install-recommends python3 python3-venv
}

# Installs the packages of $1/package-lock.json into $2, whenever that file changes.
install_npm() {
  local from=$1 to=$2
  # Download URLs would tie the lock file to one registry.
  if grep -q '"resolved"' "$from/package-lock.json"; then
    echo "$from/package-lock.json contains download URLs; run npm install there with omit-lockfile-registry-resolved" >&2
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
