"""JAX on the workload of the benches: the step on resident data, and fed by a prefetching iterator.

A thread gathers shuffled batches with NumPy and puts them on the device ahead of the step, up to the length of its
queue. The step is one jitted function with donated parameters.
"""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import itertools
import queue
import statistics
import threading

import jax
import jax.numpy as jnp
import numpy as np

from rows import CLASSES, HIDDEN, Report, alone, arguments, interleaved, training_set

RESIDENT, DEPTH = 8, 3


def parameters(inputs):
    sizes = [inputs, HIDDEN, HIDDEN, CLASSES]
    keys = jax.random.split(jax.random.key(1), 3)
    layers = []
    for key, fan_in, fan_out in zip(keys, sizes, sizes[1:]):
        bound = fan_in**-0.5
        layers.append(
            (jax.random.uniform(key, (fan_in, fan_out), minval=-bound, maxval=bound), jnp.zeros(fan_out))
        )
    return layers


def loss(layers, image, label):
    x = image.astype(jnp.float32) * (1.0 / 255.0)
    for weights, bias in layers[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = layers[-1]
    logits = jax.nn.log_softmax(x @ weights + bias)
    return -jnp.take_along_axis(logits, label[:, None].astype(jnp.int32), axis=1).mean()


def update(layers, velocity, image, label):
    gradients = jax.grad(loss)(layers, image, label)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
    return jax.tree.map(lambda p, v: p - 0.01 * v, layers, velocity), velocity


class Prefetched:
    """Batches put on the device by a thread, `DEPTH` ahead."""

    def __init__(self, images, labels, batch, device):
        self.queue, self.over = queue.Queue(DEPTH), threading.Event()
        self.thread = threading.Thread(target=self.run, args=(images, labels, batch, device), daemon=True)
        self.thread.start()

    def run(self, images, labels, batch, device):
        random = np.random.default_rng(3)
        while not self.over.is_set():
            order = random.permutation(len(labels))
            for start in range(0, len(labels) - batch + 1, batch):
                ids = order[start : start + batch]
                # `take` gathers rows faster than indexing does.
                pair = jax.device_put((images.take(ids, axis=0), labels.take(ids)), device)
                while not self.over.is_set():
                    try:
                        self.queue.put(pair, timeout=0.1)
                        break
                    except queue.Full:
                        pass
                if self.over.is_set():
                    return

    def next(self):
        return self.queue.get(timeout=60)

    def close(self):
        self.over.set()
        self.thread.join()


def run(options, report, device, batch, images, labels):
    step = jax.jit(update, donate_argnums=(0, 1))
    state = [parameters(images.shape[1])]
    state.append(jax.tree.map(jnp.zeros_like, state[0]))

    def train(image, label):
        state[:] = step(*state, image, label)

    rows = [np.arange(n * batch, (n + 1) * batch) % len(labels) for n in range(RESIDENT)]
    resident = itertools.cycle([jax.device_put((images[ids], labels[ids]), device) for ids in rows])
    baseline = lambda: train(*next(resident))
    finish = lambda: jax.block_until_ready(state)
    baseline()
    finish()
    times = alone(options, baseline, finish)
    report.add(
        "jax-step", {"batch": batch}, times, "us/step", samples_per_s=batch * 1e6 / statistics.median(times)
    )
    source = Prefetched(images, labels, batch, device)
    try:
        values, of_baseline, ratio = interleaved(options, lambda: train(*source.next()), baseline, finish)
    finally:
        source.close()
    report.add(
        "jax-train",
        {"feed": "prefetching thread", "batch": batch},
        values,
        "us/step",
        of_baseline,
        ratio,
        samples_per_s=batch * 1e6 / statistics.median(values),
    )


def main():
    options = arguments(__doc__)
    device = jax.devices()[0]
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    report = Report(options, device.device_kind, f"jax {jax.__version__}, numpy {np.__version__}")
    images, labels = training_set(options)
    for batch in options.batches:
        report.part(f"batch {batch}", lambda: run(options, report, device, batch, images, labels))


if __name__ == "__main__":
    main()
