"""tf.data's service on the work of `examples/scale`: decode of 20 ms per sample, simulated by waiting, and
workers of one thread each on one host.

    pip install tensorflow-cpu
    python tf_service.py [--workers 1,2,4,8,16] [--seconds 5]

Each worker is a process. The trainer has no worker of its own, so `n` workers can make `n` times 50 samples per
second. `OFF`: each worker sends the whole set; `DYNAMIC`: parts of the set as workers ask for them. Neither has
an order that a second run repeats.
"""

import argparse
import multiprocessing
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SAMPLES, BATCH, DECODE = 1 << 20, 8, 0.02


def dataset(tf):
    """Batches of samples that take 20 ms, one after another."""
    # A function of Python cannot be sent to a worker; this waits in the worker's own code.
    from tensorflow.python.data.experimental.ops import testing

    def fill(sample):
        return tf.fill([1024], tf.cast(sample % 256, tf.uint8))

    samples = tf.data.Dataset.range(SAMPLES).apply(testing.sleep(int(1e6 * DECODE)))
    return samples.map(fill).batch(BATCH)


def worker(address, ready):
    """A worker of the service."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(2)
    config = tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
    server = tf.data.experimental.service.WorkerServer(config)
    ready.set()
    server.join()


def rate(tf, workers, mode, seconds):
    """Samples per second that the trainer gets, and the 99th percentile of its waits."""
    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    context = multiprocessing.get_context("spawn")
    events = [context.Event() for _ in range(workers)]
    processes = [context.Process(target=worker, args=(address, event), daemon=True) for event in events]
    for process in processes:
        process.start()
    for event in events:
        event.wait()
    try:
        service = tf.data.experimental.service.distribute(
            processing_mode=mode, service=dispatcher.target, job_name=f"job-{mode}-{workers}"
        )
        batches = iter(dataset(tf).apply(service))
        # Time starts when every worker has its task and has sent a batch.
        begun = time.monotonic()
        while time.monotonic() - begun < 3 + 2 * BATCH * DECODE:
            next(batches)
        start, rows, waits = time.monotonic(), 0, []
        while time.monotonic() - start < seconds:
            asked = time.monotonic()
            rows += len(next(batches))
            waits.append(time.monotonic() - asked)
        took = time.monotonic() - start
        return rows / took, sorted(waits)[int(0.99 * (len(waits) - 1))]
    finally:
        for process in processes:
            process.kill()
            process.join()


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    import tensorflow as tf

    modes = tf.data.experimental.service.ShardingPolicy
    print(f"tensorflow {tf.__version__}, {os.cpu_count()} cores")
    print("| workers | sharding | samples/s | of linear | p99 of a batch |")
    print("| --- | --- | --- | --- | --- |")
    for workers in map(int, arguments.workers.split(",")):
        for mode in [modes.OFF, modes.DYNAMIC]:
            samples, p99 = rate(tf, workers, mode, arguments.seconds)
            linear = samples * DECODE / workers
            print(f"| {workers} | {mode.name} | {samples:.1f} | {linear:.3f} | {1e3 * p99:.0f} ms |")


if __name__ == "__main__":
    main()
