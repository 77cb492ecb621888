// Rows of keys and latents, made by a block of 256 threads. Needs row.h and RMS_EPS.

// By what the RMS norm multiplies `n` values, of which the squares of this one's are added.
INLINE float scale_held(float square, int n, SHARED_PTR float* squares, unsigned me) {
  square = sum_lanes(square);
  if (me % 32 == 0) squares[me / 32] = square;
  barrier();
  float total = squares[0];
  for (int i = 1; i < 8; i++) total = plus(total, squares[i]);
  return inverse(root(plus(over(total, (float)n), RMS_EPS)));
}
// Holds `n` values of a row; returns by what its RMS norm multiplies them.
template <typename T>
INLINE float hold_row(const GLOBAL T* from, int n, SHARED_PTR float* held,
                      SHARED_PTR float* squares, unsigned me) {
  float square = 0.0f;
  for (int i = (int)me; i < n; i += 256) {
    const float v = value_of(from[i]);
    held[i] = v;
    square = fused(v, v, square);
  }
  return scale_held(square, n, squares, me);
}
// Makes a key/value row of the `n` values held: times scale and norm, the last 2 * n_pairs
// channels turned, the others through FP8 if `is_rounded`.
INLINE void make_keys(SHARED_PTR float* held, int n, float scale, const GLOBAL float* norm,
                      const GLOBAL float* cosines, const GLOBAL float* sines, int n_pairs,
                      bool is_rounded, unsigned me) {
  for (int i = (int)me; i < n; i += 256) held[i] = times(times(held[i], scale), norm[i]);
  barrier();
  if (is_rounded) round_fp8(held, n - 2 * n_pairs, (int)(me / 32), 8, me % 32);
  if (me < 32) turn_row(held, n, cosines, sines, n_pairs, me, 1.0f);
  barrier();
}
