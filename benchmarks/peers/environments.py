"""Build one virtual environment per peer package, with pinned versions.

    cd benchmarks && ../.venv/bin/python -m peers.environments            # all of them, or those that are given
    cd benchmarks && ../.venv/bin/python -m peers.environments deepxde pina

Peers that use torch first get the build of torch that runs this script. No build with CUDA is then installed where it
is not needed, and libraries are compared with the same torch. A peer that cannot be installed is recorded with the
reason, and the benchmark continues without it. Existing environments are not changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-peers"
NOTES = FOLDER / "installed.json"


@dataclass(frozen=True)
class Peer:
    """Packages of an environment; `python` is the version it needs, None for the current one."""

    packages: tuple[str, ...]
    needs_torch: bool = True
    python: str | None = None


PEERS = {
    "deepxde": Peer(("deepxde==1.15.0",)),
    "pina": Peer(("pina-mathlab==0.3.2",)),
    "physicsnemo": Peer(("nvidia-physicsnemo==2.2.2",)),
    "jax": Peer(("jax==0.10.2", "jaxlib==0.10.2", "folx==0.2.30"), needs_torch=False),
    "jet": Peer(("jet-for-pytorch==1.0.0",), python="3.12"),
}


class InstallError(RuntimeError):
    """Reason why a peer could not be installed."""


def python(name: str | None) -> str:
    """Return the interpreter of a peer's environment; None is our own."""
    return sys.executable if name is None else str(FOLDER / name / "bin" / "python")


def notes() -> dict[str, dict[str, Any]]:
    """Return the record of the last run: packages per peer, and the reason if it was not installed."""
    return json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.exists() else {}


def reason_missing(name: str) -> str | None:
    """Return why a peer cannot be run, or None if it can."""
    note = notes().get(name)
    return "its environment has not been built" if note is None else note["reason"]


def build(name: str, peer: Peer) -> None:
    """Create the environment and install the peer, or raise `InstallError`."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    _run([_interpreter(peer), "-m", "venv", str(FOLDER / name)], peer)
    install = [python(name), "-m", "pip", "install", "--prefer-binary"]
    same_torch: list[str] = []
    if peer.needs_torch:
        try:
            same_torch = [f"torch=={torch.__version__}"]
            _run([*install, *same_torch], peer)
        except InstallError:
            # Another Python may not have this build; use any build of the same version.
            same_torch = [f"torch=={torch.__version__.partition('+')[0]}"]
            _run([*install, *same_torch], peer)
    # The driver exchanges arrays with its workers.
    _run([*install, "--constraint", str(ROOT / "constraints.txt"), *same_torch, "numpy", *peer.packages], peer)


def _interpreter(peer: Peer) -> str:
    if peer.python is None:
        return sys.executable
    found = shutil.which(f"python{peer.python}")
    if found is None:
        raise InstallError(f"Python {peer.python} is not here")
    return found


def _run(command: list[str], peer: Peer) -> None:
    # The shims of a version manager need the version to be set.
    version = {"PYENV_VERSION": peer.python} if peer.python else {}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | version, check=False)
    if done.returncode:
        raise InstallError(_last_line(done.stderr) + (f" (Python {peer.python})" if peer.python else ""))


def _last_line(message: str) -> str:
    """Return the last informative line, without addresses and paths of this machine."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    errors = [line for line in errors if not line.startswith("ResolutionImpossible")]  # names no package
    last = (errors or lines or ["no message"])[-1]
    return re.sub(r"\s*\(?(\w+://|/)\S+", "", last)


def _is_done(name: str, peer: Peer, note: Mapping[str, Any] | None) -> bool:
    if note is None or note["reason"] is not None or note["packages"] != list(peer.packages):
        return False
    return Path(python(name)).exists()


def main(names: Sequence[str] = tuple(PEERS)) -> None:
    """Build missing environments and list all of them."""
    FOLDER.mkdir(exist_ok=True)
    found = notes()
    for name in names:
        peer = PEERS[name]
        if not _is_done(name, peer, found.get(name)):
            print(f"{name}: installing {', '.join(peer.packages)} …", flush=True)
            try:
                build(name, peer)
                reason = None
            except InstallError as error:
                shutil.rmtree(FOLDER / name, ignore_errors=True)
                reason = str(error)
            found[name] = {"packages": list(peer.packages), "reason": reason}
            NOTES.write_text(json.dumps(found, indent=2), encoding="utf-8")
        reason = found[name]["reason"]
        print(f"{name}: {', '.join(peer.packages)}" if reason is None else f"{name}: not installed: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:] or tuple(PEERS))
