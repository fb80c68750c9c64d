"""Graph passes and the pipeline that runs them; see `passes/base.py` and `passes/pipeline.py`."""

from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.pipeline import PASSES, PassRun, run_pipeline

__all__ = ["PASSES", "CompilerPass", "PassResult", "PassRun", "run_pipeline"]
