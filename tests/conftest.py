import pytest
import torch
from hypothesis import settings

# More threads only slow down networks as small as the ones tested here.
torch.set_num_threads(1)

# The same examples every time, and no time limit for one of them: a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
