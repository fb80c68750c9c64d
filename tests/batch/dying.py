"""A job that ends its process, as the system does when memory runs out; the others are real."""

import os

from tx8fast.batch import work


def run_job(job, out, cache):
    if job.name == "net1/opt1":
        os._exit(9)
    return work.run_job(job, out, cache)
