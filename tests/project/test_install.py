"""Wheel and sdist install with Python alone, including manual, man page and completions."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("hatchling", reason="hatchling is the build backend: pip install hatchling")
    folder = tmp_path_factory.mktemp("dist")
    for target in ("sdist", "wheel"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.slow
def test_a_wheel_holds_all_user_files(built):
    [wheel] = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "zerochat/manual/getting-started.md" in names
    assert any(name.endswith(".data/data/share/man/man1/zerochat.1") for name in names)
    assert any(name.endswith("bash-completion/completions/zerochat") for name in names)
    assert not [name for name in names if name.startswith(("tests", "scripts"))]


@pytest.mark.slow
def test_an_sdist_holds_the_whole_project(built):
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"README.md", "LICENSE", "CHANGELOG.md", "scripts/test", "tests/conftest.py", "assets/man/zerochat.1"}
    assert needed <= names


@pytest.mark.long
def test_a_wheel_installs_alone(built, tmp_path, monkeypatch):
    """Needs a package index, for the dependencies."""
    [wheel] = built.glob("*.whl")
    environment = tmp_path / "environment"
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):  # pip needs the authorities of this machine
        monkeypatch.delenv(name)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=300)
    python = environment / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", str(wheel)], check=True, timeout=900)
    for command, text in (("help", "getting-started"), ("help limits", "64 KiB"), ("--version", "zerochat 0")):
        run = subprocess.run(
            [str(environment / "bin" / "zerochat"), *command.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0 and text in run.stdout, (command, run.stderr)
    assert (environment / "share" / "man" / "man1" / "zerochat.1").exists()
