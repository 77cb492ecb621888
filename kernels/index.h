// A row or query of the indexer in a simdgroup's registers: a lane holds VALUES channels in turn.
// Needs row.h, WIDTH, HADAMARD and FLOOR.

// Turned by the row's angles; `held` is room for WIDTH values. Then, if `is_rounded`, the Hadamard
// transform and the FP4 round trip.
INLINE void make_index_row(PRIVATE float* v, SHARED_PTR float* held, const GLOBAL float* cosines,
                           const GLOBAL float* sines, int n_pairs, bool is_rounded, unsigned lane) {
  UNROLL for (int i = 0; i < VALUES; i++) held[VALUES * (int)lane + i] = v[i];
  simd_sync();
  turn_row(held, WIDTH, cosines, sines, n_pairs, lane, 1.0f);
  simd_sync();
  UNROLL for (int i = 0; i < VALUES; i++) v[i] = held[VALUES * (int)lane + i];
  if (!is_rounded) return;
  UNROLL for (int step = 1; step < VALUES; step *= 2) {
    UNROLL for (int i = 0; i < VALUES; i++) {
      if (!(i & step)) {
        const float a = v[i], b = v[i + step];
        v[i] = plus(a, b);
        v[i + step] = plus(a, -b);
      }
    }
  }
  for (unsigned mask = 1; mask < 32; mask *= 2) {
    UNROLL for (int i = 0; i < VALUES; i++) {
      const float other = from_lane_xor(v[i], mask);
      v[i] = lane & mask ? plus(other, -v[i]) : plus(v[i], other);
    }
  }
  float top = FLOOR;
  UNROLL for (int i = 0; i < VALUES; i++) {
    v[i] = times(v[i], HADAMARD);
    top = largest(top, size_of(v[i]));
  }
  for (unsigned mask = 1; mask < 32 / VALUES; mask *= 2)
    top = largest(top, from_lane_xor(top, mask));
  const float fp4 = scale_of(top, 0x400000u, 2u);
  UNROLL for (int i = 0; i < VALUES; i++) v[i] = times(to_e2m1(over(v[i], fp4)), fp4);
}
