"""Ten lines that train: a linear model, by NumPy alone."""

import numpy as np

import feedline

x = np.random.default_rng(0).normal(size=(10_000, 8)).astype(np.float32)
data = feedline.Data({"x": x, "y": x @ np.arange(8, dtype=np.float32)})
weights = np.zeros(8, np.float32)
with feedline.Loader(data, batch_size=100, shuffle=True, seed=7, framework="numpy") as loader:
    for epoch in range(3):
        for batch in loader.epoch(epoch):
            wrong = batch["x"] @ weights - batch["y"]
            weights -= 0.1 * batch["x"].T @ wrong / batch.rows
print(weights)
assert np.allclose(weights, np.arange(8), atol=1e-2)
