"""One Ray cluster of two CPUs for a whole test run. Ends when its standard input does."""

import contextlib
import sys

from adamab.engines import ray_cluster

CPUS = 2
STORE_BYTES = 200 * 2**20


def main():
    with ray_cluster(cpus=CPUS, store_bytes=STORE_BYTES) as ray:
        print(ray.get_runtime_context().gcs_address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
