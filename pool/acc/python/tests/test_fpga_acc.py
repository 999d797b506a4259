"""The Python package with a pool that lends one slot: FPGA_POOL says where. `cargo test -p fpga-acc-c --test python` starts
the pool and runs these tests."""

import asyncio
import hashlib
import os
import tempfile
import threading
import unittest

import fpga_acc

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

    def test_runs_are_pieces_of_one_stream_and_fill_the_buffer_that_they_are_given(self):
        plain, secret, again = os.urandom(5_000), bytearray(5_000), bytearray()
        with fpga_acc.open("aes-256-ctr", 5_000, timeout=60, **AES) as job:
            self.assertEqual(job.buffer_bytes, 5_000)
            for part in (slice(0, 1_600), slice(1_600, 5_000)):
                written = job.run(memoryview(plain)[part], out=memoryview(secret)[part])
                self.assertEqual(len(written), part.stop - part.start)
        with fpga_acc.open("aes-256-ctr", 5_000, timeout=60, **AES) as job:
            again += job.run(secret)
        self.assertNotEqual(secret, plain)
        self.assertEqual(again, plain)

    def test_numpy_arrays_go_in_and_come_out_where_they_are(self):
        import numpy

        plain = numpy.arange(10_000, dtype="u4").reshape(100, 100)
        secret, again = numpy.empty_like(plain), numpy.zeros_like(plain)
        with fpga_acc.open("aes-256-ctr", plain.nbytes, timeout=60, **AES) as job:
            written = job.stream(plain, out=secret)
            self.assertEqual(len(written), plain.nbytes)
            self.assertTrue(numpy.shares_memory(numpy.frombuffer(written, "u4"), secret))
        with fpga_acc.open("aes-256-ctr", plain.nbytes, timeout=60, **AES) as job:
            job.run(secret, out=again)
        numpy.testing.assert_array_equal(again, plain)
        with fpga_acc.open("sha-256", 400, timeout=60) as job:
            with self.assertRaises((BufferError, ValueError)):
                job.stream(plain[:, 0])
            with self.assertRaises((BufferError, ValueError)):
                plain.flags.writeable = False
                job.stream(plain[0], out=plain[1])
            expected = hashlib.sha256(plain[0].tobytes()).digest()
            self.assertEqual(bytes(numpy.frombuffer(job.run(plain[0]), "u1")), expected)

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
            self.assertEqual(holder.status().state, "running")
            with self.assertRaisesRegex(fpga_acc.Error, "6 bytes"):
                holder.run(b"123456")
            with self.assertRaisesRegex(ValueError, "32 bytes"):
                holder.run(b"12345", out=bytearray(31))
        with self.assertRaises(fpga_acc.Closed):
            holder.run(b"1")

    def test_a_job_that_waits_says_why_and_another_thread_gives_it_up(self):
        with fpga_acc.open("sha-256", 5, timeout=60):
            waiting = fpga_acc.Job("sha-256", 5)
            while "slot" not in waiting.status().reason:
                with self.assertRaises(fpga_acc.Timeout):
                    waiting.wait(0.02)
            self.assertEqual(waiting.status().state, "waiting")
            threading.Timer(0.05, waiting.cancel).start()
            with self.assertRaisesRegex(fpga_acc.Error, "cancelled"):
                waiting.wait()
            waiting.close()
            waiting.close()

    def test_the_processor_does_what_no_slot_comes_for(self):
        plain = os.urandom(5_000_001)
        with fpga_acc.open("aes-256-ctr", len(plain), timeout=60, **AES) as job:
            expected = job.stream(plain)
        with fpga_acc.open("sha-256", 5, timeout=60):
            with fpga_acc.open("aes-256-ctr", len(plain), or_else=fpga_acc.OrElse(0.05), **AES) as job:
                self.assertEqual(job.status().state, "on the processor")
                self.assertEqual(job.stream(plain), expected)
                self.assertEqual((job.status().processor_bytes, job.status().slots), (len(plain), 0))

    def test_a_function_of_the_program_is_the_processor(self):
        def digest(data, state, arguments, is_last):
            self.assertEqual((state, arguments, is_last), (bytes(40), b"", True))
            return hashlib.sha256(data).digest(), state

        def asked(compute):
            with fpga_acc.open("sha-256", 5, timeout=60, or_else=fpga_acc.OrElse(0, compute)) as job:
                return job.run(b"12345", timeout=60)

        self.assertEqual(asked(digest), hashlib.sha256(b"12345").digest())
        with self.assertRaisesRegex(fpga_acc.Error, "could not do the job") as raised:
            asked(lambda *_: 1 / 0)
        self.assertIsInstance(raised.exception.__cause__, ZeroDivisionError)
        with self.assertRaises(fpga_acc.Error) as raised:
            asked(lambda *_: (b"short", bytes(40)))
        self.assertIn("return 32", str(raised.exception.__cause__))

    def test_a_task_that_is_cancelled_gives_its_job_up(self):
        async def cancelled():
            with fpga_acc.open("sha-256", 5, timeout=60):
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await fpga_acc.open_async("sha-256", 5)
            return await fpga_acc.open_async("sha-256", 5)

        with asyncio.run(cancelled()) as job:
            self.assertEqual(job.run(b"12345"), hashlib.sha256(b"12345").digest())


class Together(unittest.TestCase):
    """The pool has two slots."""

    def test_jobs_have_their_slots_together_or_not_at_all(self):
        with self.assertRaisesRegex(fpga_acc.Error, "0 jobs"):
            fpga_acc.open_many("sha-256", 5, 0)
        with self.assertRaises(fpga_acc.Timeout):
            fpga_acc.open_many("sha-256", 5, 3, timeout=0.3)
        jobs = fpga_acc.open_many("sha-256", 5, 2, timeout=60)
        self.assertEqual([job.run(b"12345") for job in jobs], [hashlib.sha256(b"12345").digest()] * 2)
        for job in jobs:
            job.close()

    def test_a_job_of_several_says_why_it_fails(self):
        jobs = fpga_acc.open_many("sha-256", 5, 2, timeout=60)
        jobs[0].cancel()
        with self.assertRaisesRegex(fpga_acc.Error, "cancelled"):
            jobs[0].wait(60)
        for job in jobs:
            job.close()

    def test_asyncio(self):
        async def both():
            async with asyncio.timeout(60):
                jobs = await fpga_acc.open_many_async("sha-256", 1, 2)
                return await asyncio.gather(*(job.run_async(b"1") for job in jobs))

        self.assertEqual(asyncio.run(both()), [hashlib.sha256(b"1").digest()] * 2)


class Groups(unittest.TestCase):
    def test_a_group_maps_inputs_to_outputs_in_order(self):
        inputs = [bytes([index]) * 20_000 for index in range(30)]
        with fpga_acc.Group("sha-256", deadline=(30, 3600.0), slots=(0, 1)) as group:
            outputs = group.map(inputs)
            statistics = group.statistics()
        self.assertEqual(outputs, [hashlib.sha256(data).digest() for data in inputs])
        self.assertEqual((statistics.done, statistics.failed, statistics.reaches_goal), (30, 0, True))

    def test_an_action_that_fails_raises(self):
        with fpga_acc.Group("sha-256", actions_per_hour=3600, slots=(0, 1)) as group:
            group.submit(bytes(4_000_064))
            with self.assertRaisesRegex(fpga_acc.Error, "4000064 bytes") as raised:
                list(group.ended())
            self.assertEqual(raised.exception.action, 0)

    def test_asyncio(self):
        async def digests():
            with fpga_acc.Group("sha-256", actions_per_hour=3600, slots=(0, 1)) as group:
                tags = {await group.submit_async(bytes([value])): value for value in range(10)}
                return {tags[tag]: output async for tag, output in group.ended_async()}

        expected = {value: hashlib.sha256(bytes([value])).digest() for value in range(10)}
        self.assertEqual(asyncio.run(digests()), expected)


if __name__ == "__main__":
    unittest.main()
