"""The Python package with a pool that lends one slot: FPGA_POOL says where. `cargo test -p fpga-acc-c --test python` starts
the pool and runs these tests."""

import asyncio
import hashlib
import os
import tempfile
import unittest

import fpga_acc

try:
    import numpy
except ImportError:
    numpy = None

AES = {"key": bytes(range(32)), "counter": bytes(16)}


class Jobs(unittest.TestCase):
    def test_a_stream_of_any_length_and_back(self):
        plain = os.urandom(5_000_001)
        with fpga_acc.open("aes-256-ctr", len(plain), timeout=60, **AES) as job:
            secret = job.stream(plain)
            self.assertEqual(job.status().output_bytes, len(plain))
        self.assertNotEqual(secret, plain)
        with fpga_acc.open("aes-256-ctr", len(plain), timeout=60, **AES) as job:
            self.assertEqual(job.stream(secret), plain)

    def test_runs_write_into_the_input_buffer_and_see_the_output_without_copies(self):
        with fpga_acc.open("sha-256", 3, timeout=60) as job:
            job.input[:] = b"abc"
            self.assertEqual(bytes(job.run(3)), hashlib.sha256(b"abc").digest())

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_arrays_go_in_and_come_out_without_copies(self):
        plain = numpy.arange(10_000, dtype="u4")
        secret = numpy.empty_like(plain)
        with fpga_acc.open("aes-256-ctr", plain.nbytes, timeout=60, **AES) as job:
            self.assertEqual(len(job.stream(plain, out=secret)), plain.nbytes)
        with fpga_acc.open("aes-256-ctr", plain.nbytes, timeout=60, **AES) as job:
            numpy.frombuffer(job.input, "u4")[:] = secret
            again = numpy.frombuffer(job.run(plain.nbytes), "u4")
            numpy.testing.assert_array_equal(again, plain)

    def test_files(self):
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
            source.write(b"x" * 1000)
            source.flush()
            source.seek(0)
            with fpga_acc.open("sha-256", 1000, timeout=60) as job:
                job.stream_files(source, target)
            target.seek(0)
            self.assertEqual(target.read(), hashlib.sha256(b"x" * 1000).digest())

    def test_asyncio(self):
        async def digest(data):
            async with asyncio.timeout(60):
                job = await fpga_acc.open_async("sha-256", len(data))
                with job:
                    return await job.stream_async(data)

        async def both():
            return await asyncio.gather(digest(b"a" * 100_000), digest(b"b"))

        expected = [hashlib.sha256(data).digest() for data in (b"a" * 100_000, b"b")]
        self.assertEqual(asyncio.run(both()), expected)

    def test_what_is_wrong_is_told(self):
        with self.assertRaisesRegex(fpga_acc.Error, "sobel"):
            fpga_acc.open("sobel", 1, timeout=60)
        with fpga_acc.open("sha-256", 5, timeout=60) as holder:
            with self.assertRaises(fpga_acc.Timeout):
                fpga_acc.open("sha-256", 5, timeout=0.3)
            self.assertEqual(holder.status().state, "running")
            with self.assertRaisesRegex(fpga_acc.Error, "6 bytes"):
                holder.run(6)


class Groups(unittest.TestCase):
    def test_a_group_maps_inputs_to_outputs_in_order(self):
        inputs = [bytes([index]) * 20_000 for index in range(30)]
        with fpga_acc.Group("sha-256", deadline=(30, 60.0), slots=(0, 1)) as group:
            outputs = group.map(inputs)
            statistics = group.statistics()
        self.assertEqual(outputs, [hashlib.sha256(data).digest() for data in inputs])
        self.assertEqual((statistics.done, statistics.failed, statistics.reaches_goal), (30, 0, True))

    def test_an_action_that_fails_raises(self):
        with fpga_acc.Group("sha-256", actions_per_hour=3600, slots=(0, 1)) as group:
            group.submit(bytes(4_000_064))
            with self.assertRaisesRegex(fpga_acc.Error, "4000064 bytes"):
                list(group.ended())


if __name__ == "__main__":
    unittest.main()
