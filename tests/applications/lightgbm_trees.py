"""LightGBM trains on the OpenCL device: histograms of many features, in double precision."""

import lightgbm
import numpy as np

random = np.random.default_rng(7)
features = random.random((1000, 20))
labels = (features[:, 0] * features[:, 1] + np.sin(features[:, 2] * 6) + random.normal(0, 0.1, 1000) > 0.4).astype(int)
parameters = {
    "objective": "binary", "device_type": "gpu", "gpu_use_dp": True, "num_leaves": 31, "max_bin": 63, "seed": 7,
    "num_threads": 2, "deterministic": True, "verbosity": -1,
}
model = lightgbm.train(parameters, lightgbm.Dataset(features, labels), num_boost_round=3)
predicted = model.predict(features)
print("right", int(((predicted > 0.5) == labels).sum()), "of", len(labels))
print("first", " ".join(f"{value:.9f}" for value in predicted[:8]))
