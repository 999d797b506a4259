"""OpenCV's transparent OpenCL: filters and a matrix product over UMat."""

import hashlib

import cv2
import numpy as np

cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL(), "OpenCV found no OpenCL device"
print(cv2.ocl.Device.getDefault().name())
random = np.random.default_rng(7)
image = cv2.UMat(random.integers(0, 256, (480, 640, 3), dtype=np.uint8))
grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
results = {
    "grey": grey,
    "blurred": cv2.GaussianBlur(grey, (7, 7), 1.5),
    "curvature": cv2.Laplacian(grey, cv2.CV_32F),
    "smaller": cv2.resize(image, (200, 150), interpolation=cv2.INTER_AREA),
    "eroded": cv2.erode(grey, np.ones((5, 5), np.uint8)),
    "gradient": cv2.Sobel(grey, cv2.CV_32F, 1, 0),
    "warped": cv2.warpAffine(grey, np.float32([[0.9, 0.1, 3], [-0.1, 0.9, 5]]), (640, 480)),
    "product": cv2.gemm(*(cv2.UMat(random.random((96, 96), dtype=np.float32)) for _ in range(2)), 1, None, 0),
}
for name, result in results.items():
    print(name, hashlib.sha256(result.get().tobytes()).hexdigest())
