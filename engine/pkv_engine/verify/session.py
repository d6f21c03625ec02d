"""One run of the command: the server to verify, the replays of all files, and what is measured afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace

from pkv_engine.protocol.urls import server_root
from pkv_engine.verify.asking import connect
from pkv_engine.verify.calibration import Prompts, calibrate
from pkv_engine.verify.report import Report
from pkv_engine.verify.target import Target, bundled_engine
from pkv_engine.verify.verification import Verifier, Verifying, find_server
from pkv_lint.options import ServerOptions
from pkv_lint.prompt.renderer import Renderer
from pkv_sim.timing.timing_profile import TimingProfile

TINY = "tiny"
"""The built-in model of the engine, which has the built-in layout."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """The server as the user named it; without `base_url` the bundled engine is meant. `program` is what complains."""

    options: ServerOptions
    base_url: str | None
    api_key: str | None
    program: str

    def target(self, choice: Verifying) -> AbstractAsyncContextManager[Target]:
        """Raises InputError for what is no URL."""
        if self.base_url is not None:
            return nullcontext(Target(server_root(self.base_url, "--base-url")))
        given = {
            "--model": self.options.model or TINY,
            "--tokenizer": self.options.tokenizer,
            "--chat-template": self.options.chat_template,
            "--block-size": self.options.block_size,
            "--num-gpu-blocks": choice.num_gpu_blocks,
        }
        arguments = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        return bundled_engine([*arguments, "--offline"] if self.options.offline else arguments)

    def renderer(self) -> tuple[Renderer, bool]:
        """What renders prompts, and whether it does so as the server: the built-in layout is that of `tiny` alone.

        Raises InputError for what cannot be loaded.
        """
        model = self.options.model or (TINY if self.base_url is None else None)
        if model == TINY:
            return replace(self.options, model=None).renderer(self.program), True
        renderer = self.options.renderer(self.program)
        return renderer, not renderer.approximate


async def verify_all(
    files: Sequence[str], deployed: Deployed, choice: Verifying, *, calibrated: bool
) -> tuple[list[Report], TimingProfile | None]:
    """A report for each file, each replayed on an empty cache where there are several, and a timing profile of the
    server when that is to be `calibrated`. Raises InputError."""
    renderer, exact = deployed.renderer()
    timeout = choice.asking.timeout
    async with (
        deployed.target(choice) as target,
        connect(target.url, api_key=deployed.api_key, timeout=timeout) as client,
    ):
        choice = replace(
            choice,
            exact_prompts=exact,
            fresh=target.fresh,
            reset_cache=choice.reset_cache or len(files) > 1,
            step_log=choice.step_log or target.step_log,
        )
        verifier = Verifier(client, await find_server(client), renderer, choice)
        reports = [await verifier.verify(file) for file in files]
        if not calibrated:
            return reports, None
        # Afterwards, as what it sends fills the cache.
        profile = await calibrate(
            client, verifier.server, verifier.cache, Prompts.of(reports), timeout=timeout, progress=choice.progress
        )
        return reports, profile
