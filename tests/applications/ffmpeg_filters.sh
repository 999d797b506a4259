#!/usr/bin/env bash
# FFmpeg's OpenCL filters over ten frames of a test picture; prints a digest of each frame.
set -euo pipefail
exec ffmpeg -nostdin -v error -init_hw_device opencl=ocl:0.0 -filter_hw_device ocl -f lavfi -i testsrc2=size=320x240:rate=10:duration=1 \
    -vf format=yuv420p,hwupload,avgblur_opencl=3,unsharp_opencl,transpose_opencl,hwdownload,format=yuv420p -f framemd5 -
