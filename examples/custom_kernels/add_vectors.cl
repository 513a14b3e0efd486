// SPDX-License-Identifier: Apache-2.0
// For tessera-bench --custom (add_vectors.json beside this file).
kernel void add_vectors(global const INPUT_0_TYPE* x, global const INPUT_1_TYPE* y,
                        global OUTPUT_0_TYPE* sum) {
  const size_t i = get_global_id(0);
  sum[i] = x[i] + y[i];
}
