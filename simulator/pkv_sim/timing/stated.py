"""Where step times come from: the command line's choice."""

from __future__ import annotations

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.model_config import ModelConfig
from pkv_sim.timing.file import load_timing
from pkv_sim.timing.gpus import Gpu
from pkv_sim.timing.roofline import roofline
from pkv_sim.timing.timing_profile import TimingProfile


def stated_timing(
    file: str | None, gpu: Gpu | None, config: ModelConfig | None, name: str | None, deployment: Deployment
) -> TimingProfile | None:
    """What was measured (`file`) where it is given, else an estimate for the GPU and the model that is called `name`.
    None: nothing is to be timed. Raises InputError."""
    if file is not None:
        return load_timing(file)
    return roofline(config, name, gpu, deployment) if gpu is not None else None
