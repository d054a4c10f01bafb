import gc
import os
import signal
import sys
from functools import partial

import pytest
import torch
from fixtures import dudx, script, smoke
from hypothesis import settings

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them are about.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules are kept as they were compiled, also where the environment asks for nothing to be written: the processes that
# the tests are spread over and those that they start would compile hundreds of files each.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tables as wide as they need to be, whatever window the tests are started from.
os.environ["COLUMNS"] = "160"

# Some virtual machines announce AMX and kill the process that uses it, as oneDNN does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# More threads only slow down networks as small as the ones tested here.
torch.set_num_threads(1)

# Repeatable examples without a time limit per example: a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


#: Files whose tests share something that takes long to make, and what: one process runs all that share the same.
SHARED = {
    "test_experiments.py": "smoke reproduction",
    "test_reproducing.py": "smoke reproduction",
    "test_sweep.py": "sweep",
    "test_references.py": "refined meshes",
    "test_damage.py": "runs to damage",
    "test_staged_run.py": "runs in windows",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Deal out tests one by one, but for those that share something."""
    from xdist.scheduler import LoadScopeScheduling

    class Dealer(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SHARED.get(nodeid.partition("::")[0].rpartition("/")[2], nodeid)

    return Dealer(config, log)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes seconds, by processes of its own or by much work; -m 'not slow'")


__all__ = ["dudx", "script", "smoke"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "smoke" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    gc.freeze()  # what there is by now stays, and need not be looked through for what can be freed
    gc.set_threshold(10_000, 20, 50)  # with the default a tenth of the time goes into collections


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def only_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled graphs without the last step, which makes C++ of them and takes most of the time.

    They are traced as always, the backward pass too, and checked at each call. For tests of what is compiled when;
    what is computed in the end is compared where nothing is left out.
    """
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
