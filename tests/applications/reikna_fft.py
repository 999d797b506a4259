"""Reikna's FFT and matrix product."""

import numpy as np
from reikna import cluda
from reikna.fft import FFT
from reikna.linalg import MatrixMul

thread = cluda.ocl_api().Thread.create()
random = np.random.default_rng(7)
signal = (random.random((64, 1024)) + 1j * random.random((64, 1024))).astype(np.complex64)
on_device = thread.to_device(signal)
result = thread.empty_like(on_device)
FFT(on_device, axes=(1,)).compile(thread)(result, on_device)
print("fft", np.allclose(result.get(), np.fft.fft(signal, axis=1), rtol=1e-3, atol=1e-3), result.get().tobytes()[:32].hex())
a, b = (thread.to_device(random.random((100, 100)).astype(np.float32)) for _ in range(2))
product = thread.array((100, 100), np.float32)
MatrixMul(a, b, out_arr=product).compile(thread)(product, a, b)
print("product", product.get().tobytes()[:32].hex())
