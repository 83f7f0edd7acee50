"""How many files this process may have open."""

import sys

FILES_MAX = 65_536


def allow_many_files() -> None:
    """Raise the soft limit of open files, often 1,024 or 256, as far as it goes: a group of 256 needs about 1,100."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (FILES_MAX, 10_240):  # macOS grants no more than its OPEN_MAX, whatever the hard limit says
        wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
        except (ValueError, OSError):
            continue


def files_allowed() -> int:
    """How many this process may have open."""
    if sys.platform == "win32":
        return FILES_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else soft
