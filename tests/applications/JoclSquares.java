import static org.jocl.CL.*;

import org.jocl.*;

/** JOCL, with the device type of all Java programs: every bit set. */
public class JoclSquares {
    public static void main(String[] arguments) {
        CL.setExceptionsEnabled(true);
        cl_platform_id[] platforms = new cl_platform_id[1];
        clGetPlatformIDs(1, platforms, null);
        cl_device_id[] devices = new cl_device_id[1];
        clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, devices, null);
        cl_context context = clCreateContext(null, 1, devices, null, null, null);
        cl_command_queue queue = clCreateCommandQueue(context, devices[0], 0, null);
        int[] numbers = new int[10_000];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = i;
        }
        long size = (long) Sizeof.cl_int * numbers.length;
        cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, Pointer.to(numbers), null);
        String source = "kernel void square(global int *v) { int i = get_global_id(0); v[i] = v[i] * v[i] + 1; }";
        cl_program program = clCreateProgramWithSource(context, 1, new String[] {source}, null, null);
        clBuildProgram(program, 0, null, null, null, null);
        cl_kernel kernel = clCreateKernel(program, "square", null);
        clSetKernelArg(kernel, 0, Sizeof.cl_mem, Pointer.to(buffer));
        clEnqueueNDRangeKernel(queue, kernel, 1, null, new long[] {numbers.length}, null, 0, null, null);
        clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, Pointer.to(numbers), 0, null, null);
        long sum = 0;
        for (int number : numbers) {
            sum = sum * 31 + number;
        }
        System.out.println("last " + numbers[numbers.length - 1] + ", sum " + sum);
    }
}
