"""The agent's memory, which holds keys: locked where the system allows it, and closed to debuggers."""

import subprocess
import sys

import pytest

from tests.support.machines import Machine
from zerochat.agent.doctor import CheckContext, run_checks
from zerochat.agent.service import memory_protection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mlockall and prctl as on Linux")

VARIABLE = "ZEROCHAT_AGENT__PROTECT_MEMORY"
CHILD = """
import ctypes, mmap, resource, sys
from zerochat.agent.service import memory_protection as protection
def locked_kb():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmLck")]
    return int(line.split()[1])
{before}
protection.protect()
kept = [mmap.mmap(-1, 1 << 26) for _ in range(4)]  # more than any low limit of locked memory
for each in kept:
    each[:1] = b"x"
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), locked_kb() > 0, protection.is_dumpable(), protection.is_locked())
"""
LOW = """
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 16, 1 << 16))
header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of capset(2)
assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0  # no capabilities, not even as root
"""


def protected_child(before):
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(before=before)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_memory_is_locked_without_a_limit():
    if not memory_protection._may_lock_all():
        pytest.skip("a limit applies here, which this user cannot raise")
    assert protected_child("") == ["0", "True", "False", "True"]


def test_a_low_limit_locks_nothing_and_refuses_no_memory():
    assert protected_child(LOW) == ["0", "False", "False", "False"]


@pytest.mark.parametrize("protects", [True, False])
def test_doctor_reports_what_the_running_agent_has_done(tmp_path, protects):
    machine = Machine(tmp_path, "alice")
    machine.environment[VARIABLE] = str(protects).lower()
    machine.start()
    try:
        status = machine.client.get_status()
        assert status.dumpable is not protects and (protects or not status.memory_locked)
        context = CheckContext(machine.places, {})
        (found, *others) = run_checks(context, ["memory"]).checks
        context.client.close()
        if protects:
            assert (found.state, others) == ("ok", []) and "no other process of this user can read it" in found.text
            assert ("is locked" in found.text) is status.memory_locked
        else:
            assert found.state == "warn" and "agent.protect_memory" in found.remedy
    finally:
        machine.kill()


def test_a_stopped_agent_has_no_memory_to_check(tmp_path):
    context = CheckContext(Machine(tmp_path, "alice").places, {})
    (found,) = run_checks(context, ["memory"]).checks
    assert found.state == "skip"
