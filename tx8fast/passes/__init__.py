"""Graph passes and the pipeline that runs them; see `passes/base.py` and `passes/pipeline.py`."""
