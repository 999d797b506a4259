"""Arrays, reductions and scans of PyOpenCL, which builds kernels as it goes."""

import numpy as np
import pyopencl as cl
import pyopencl.array as array
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.scan import GenericScanKernel

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
random = np.random.default_rng(7)
a = array.to_device(queue, random.random(100_000, dtype=np.float32))
b = array.to_device(queue, random.random(100_000, dtype=np.float32))

print("sum", array.sum(a * b + 2).get().tobytes().hex())
print("largest", array.max(a - b).get().tobytes().hex())

combine = ElementwiseKernel(context, "float *x, float *y, float by", "x[i] = x[i] * by - y[i]", "combine")
combine(a, b, np.float32(1.5))
print("combined", a.get().tobytes()[:32].hex())

scan = GenericScanKernel(context, np.int32, "int *x", "x[i]", "a+b", "0", "x[i] = item;")
numbers = array.to_device(queue, random.integers(0, 9, 50_000, dtype=np.int32))
scan(numbers)
print("last of the scan", numbers.get()[-1])
