# The virtual environment of the scripts: .venv, with the packages of scripts/requirements/*.lock.
#
# Source it with `root` set to the project's folder. `prepare run` (or `prepare dev`, with the tools of scripts/test; or
# `prepare analytics`, with Spark too) builds .venv if it is missing or out of date, and sets `python` to its
# interpreter. An up-to-date .venv costs the comparison of one small file. environment.py does the work.

python=$root/.venv/bin/python

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# The inputs of .venv: it is rebuilt if one changes. environment.py writes the same stamp.
stamp() {
    printf '%s\n%s\n' "$root" "$machine"
    cat "$root/scripts/requirements/$1.lock"
}

ready() {
    [ -x "$python" ] && [ -f "$root/.venv/$1.stamp" ] && stamp "$1" 2>/dev/null | cmp -s - "$root/.venv/$1.stamp"
}

prepare() {
    machine=$(uname -sm)
    # dev includes run, and analytics includes both.
    case $1 in
    run) fitting="analytics dev run" ;;
    dev) fitting="analytics dev" ;;
    *) fitting=$1 ;;
    esac
    for candidate in $fitting; do
        if ready "$candidate"; then return; fi
    done
    case $machine in
    Linux* | Darwin*) ;;
    MINGW* | MSYS* | CYGWIN* | Windows*)
        fail "zerochat runs on Linux and on macOS. On Windows, install WSL (wsl --install) and run this inside it." ;;
    *)
        printf '%s\n' "zerochat is tested on Linux and macOS only; this is ${machine%% *}. Continuing." >&2 ;;
    esac
    find_python
    # -I: neither this folder nor the user's PYTHONPATH gets between Python and its own library.
    "$found" -I "$root/scripts/environment.py" "$root" "$1" "$machine" || exit
}

# Set `found` to a Python that can build the environment: 3.11 to 3.14, or else a newer one.
find_python() {
    found= newer= lacking= seen=
    probe='import sys
lacks = []
for name in ("ensurepip", "ssl", "venv", "zlib"):
    try:
        __import__(name)
    except ImportError:
        lacks.append(name)
print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], ",".join(lacks)))'
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.14 python3.13 python3.12 python3.11 python
    fi
    for name in "$@"; do
        # A name on the PATH may be a stand-in that prints how to install Python: run it.
        answer=$("$name" -I -c "$probe" 2>/dev/null) || continue
        version=${answer%% *} lacks=${answer#* }
        case $version in
        3.1[1-9] | 3.[2-9][0-9])
            if [ -n "$lacks" ]; then
                lacking=${lacking:-"$name ($version) has no $lacks"}
            elif [ "${version#3.}" -le 14 ]; then
                found=$name
                return
            else
                newer=${newer:-$name}
            fi ;;
        *) seen="$seen${seen:+, }$name is $version" ;;
        esac
    done
    if [ -n "$newer" ]; then
        found=$newer
        printf '%s\n' "zerochat is tested with Python up to 3.14. Continuing with $newer." >&2
    elif [ -n "$lacking" ]; then
        fail "This Python is incomplete: $lacking. The environment needs it." \
            "On Debian and Ubuntu: sudo apt install python3-venv (or python3.12-venv and the like, for that version)." \
            "Elsewhere: reinstall Python with its whole standard library."
    else
        fail "zerochat needs Python 3.11 or newer; ${PYTHON:-the PATH} has none${seen:+ ($seen)}." \
            "On Debian 12, Ubuntu 24.04 and later: sudo apt install python3 python3-venv. On macOS: brew install python." \
            "For a Python outside the PATH: PYTHON=/path/to/python3.12 $0"
    fi
}
