# The environment that the scripts share: a virtual environment in .venv, with what scripts/requirements/*.lock name.
#
# To be sourced, with `root` set to the project's folder. Then `prepare run` (or `prepare dev`, with the tools of
# scripts/test; or `prepare analytics`, with Spark too) makes sure of .venv and sets `python` to its interpreter. When there is nothing to do, that costs a
# comparison of one small file; the work itself is in environment.py, which any Python from 3.11 on can run.

python=$root/.venv/bin/python

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# What .venv was made from: it is made anew when any of it changes. environment.py writes the same.
stamp() {
    printf '%s\n%s\n' "$root" "$machine"
    cat "$root/scripts/requirements/$1.lock"
}

ready() {
    [ -x "$python" ] && [ -f "$root/.venv/$1.stamp" ] && stamp "$1" | cmp -s - "$root/.venv/$1.stamp"
}

prepare() {
    machine=$(uname -sm)
    # What dev has includes all that run has, and analytics has all of both.
    case $1 in
    run) fitting="analytics dev run" ;;
    dev) fitting="analytics dev" ;;
    *) fitting=$1 ;;
    esac
    for kind in $fitting; do
        if ready "$kind"; then return; fi
    done
    case $machine in
    Linux* | Darwin*) ;;
    MINGW* | MSYS* | CYGWIN* | Windows*)
        fail "zerochat runs on Linux and on macOS. On Windows, install WSL (wsl --install) and run this inside it." ;;
    *)
        printf '%s\n' "zerochat is tried on Linux and macOS only, and this is ${machine%% *}. Going on all the same." >&2 ;;
    esac
    find_python
    # -I: neither this folder nor the user's PYTHONPATH gets between Python and its own library.
    "$found" -I "$root/scripts/environment.py" "$root" "$1" "$machine" || exit
}

# Set `found` to a Python that can make the environment: 3.11 to 3.14 if there is one, else a newer one.
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
        # A name on the PATH may still be a stand-in that only says how to install Python: ask it.
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
        printf '%s\n' "The newest Python that zerochat is tried with is 3.14. Going on with $newer all the same." >&2
    elif [ -n "$lacking" ]; then
        fail "Python is here, but not whole: $lacking, which is needed to make zerochat's own environment." \
            "On Debian and Ubuntu: sudo apt install python3-venv (or python3.12-venv and the like, for that version)." \
            "Elsewhere: install Python again with all of its standard library."
    else
        fail "zerochat needs Python 3.11 or newer, and ${PYTHON:-the PATH} has none${seen:+ ($seen)}." \
            "On Debian 12, Ubuntu 24.04 and later: sudo apt install python3 python3-venv. On macOS: brew install python." \
            "To use one that is not on the PATH: PYTHON=/path/to/python3.12 $0"
    fi
}
