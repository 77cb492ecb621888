// Work on one row of channels in shared memory by one simdgroup of 32 lanes.

// The sum over all lanes, the same in each of them.
INLINE float sum_lanes(float v) {
  for (unsigned mask = 16; mask; mask /= 2) v = plus(v, from_lane_xor(v, mask));
  return v;
}
INLINE float largest(float a, float b) { return b > a ? b : a; }
INLINE float size_of(float v) { return v < 0.0f ? -v : v; }

// Interleaved pairs of the last n_pairs pairs of channels of a row of `n` turn by the row's angles.
INLINE void turn_row(SHARED_PTR float* row, int n, const GLOBAL float* cosines,
                     const GLOBAL float* sines, int n_pairs, unsigned lane, float sign) {
  SHARED_PTR float* pairs = row + n - 2 * n_pairs;
  for (int i = (int)lane; i < n_pairs; i += 32) {
    const float a = pairs[2 * i], b = pairs[2 * i + 1];
    const float c = cosines[i], s = times(sign, sines[i]);
    pairs[2 * i] = plus(times(a, c), -times(b, s));
    pairs[2 * i + 1] = plus(times(a, s), times(b, c));
  }
}

// v / step to the nearest whole number, ties to even, times step. |v| / step below 2^22.
INLINE float to_multiple(float v, float step) {
  const float many = over(size_of(v), step);
  int whole = (int)many;
  const float rest = plus(many, -(float)whole);
  if (rest > 0.5f || (rest == 0.5f && (whole & 1))) whole++;
  const float size = times((float)whole, step);
  return v < 0.0f ? -size : size;
}
// 2^ceil(log2(amax / top)) with top = (1 + mantissa / 2^23) * 2^exponent.
INLINE float scale_of(float amax, unsigned mantissa, unsigned exponent) {
  return as_float((((as_bits(amax) + (0x7fffffu - mantissa)) >> 23) - exponent) << 23);
}
// An e4m3 value: 3 bits after the point, subnormal below 2^-6, at most 448.
INLINE float to_e4m3(float v) {
  const float size = size_of(v);
  if (!(size < 1e30f)) return v - v;  // NaN, as for infinity
  unsigned exponent = as_bits(size) >> 23;
  exponent = exponent < 121u ? 121u : exponent;
  const float out = to_multiple(v, as_float((exponent - 3u) << 23));
  return out > 448.0f ? 448.0f : out < -448.0f ? -448.0f : out;
}
// An e2m1 value: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
INLINE float to_e2m1(float v) {
  const float size = size_of(v);
  if (!(size < 1e30f)) return v - v;
  return to_multiple(v, size < 2.0f ? 0.5f : size < 4.0f ? 1.0f : 2.0f);
}
// Round the first `n` channels (a multiple of 64) to e4m3, a power-of-two scale per 64.
INLINE void round_fp8(SHARED_PTR float* row, int n, int first, int step, unsigned lane) {
  for (int at = 64 * first; at < n; at += 64 * step) {
    const float a = row[at + (int)lane], b = row[at + 32 + (int)lane];
    float top = largest(largest(1e-4f, size_of(a)), size_of(b));
    for (unsigned mask = 16; mask; mask /= 2) top = largest(top, from_lane_xor(top, mask));
    const float scale = scale_of(top, 0x600000u, 8u);
    row[at + (int)lane] = times(to_e4m3(over(a, scale)), scale);
    row[at + 32 + (int)lane] = times(to_e4m3(over(b, scale)), scale);
  }
}
// Copies `n` values at `at`, by 256 threads; where both are the same memory there is nothing to do.
template <typename T>
INLINE void copy_row(const GLOBAL T* from, GLOBAL T* to, wide at, int n, unsigned me) {
  if (from == to) return;
  const int many = 16 / (int)sizeof(T);
  if (n % many == 0) {
    for (int i = many * (int)me; i < n; i += many * 256) {
      const uint4 v = load16(from, (wide)sizeof(T) * (at + i));
      const unsigned word[4] = {v.x, v.y, v.z, v.w};
      store16(to, (wide)sizeof(T) * (at + i), word);
    }
  } else {
    for (int i = (int)me; i < n; i += 256) to[at + i] = from[at + i];
  }
}
INLINE uint4 no_bits() {
  uint4 v;
  v.x = v.y = v.z = v.w = 0;
  return v;
}
// What two values leave beyond their bf16 pair, as another pair.
INLINE unsigned rest_pair(float a, float b, unsigned pair) {
  return bf16_pair(plus(a, -as_float(pair << 16)), plus(b, -as_float(pair & 0xffff0000u)));
}
INLINE float sum_of_pair(unsigned pair) {
  return plus(as_float(pair << 16), as_float(pair & 0xffff0000u));
}
// Two values as two limbs each; returns their sum as the limbs hold it.
INLINE float split_pair(float a, float b, SHARED_PTR unsigned* high, SHARED_PTR unsigned* low) {
  const unsigned upper = bf16_pair(a, b), lower = rest_pair(a, b, upper);
  *high = upper;
  *low = lower;
  return plus(sum_of_pair(upper), sum_of_pair(lower));
}
