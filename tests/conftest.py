import os
import signal

import pytest
import torch
from hypothesis import settings

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them are about.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tables as wide as they need to be, whatever window the tests are started from.
os.environ["COLUMNS"] = "160"

# More threads only slow down networks as small as the ones tested here.
torch.set_num_threads(1)

# The same examples every time, and no time limit for one of them: a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes seconds, by processes of its own or by much work; -m 'not slow'")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
