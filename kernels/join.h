// The chunks of a row and head of attention in order, with the sink, by `n_threads` threads of
// which this is number `me`: out_h = turned back(sum w k). A chunk with total 0 changes nothing,
// whatever its sums hold: capacity does not matter. Needs row.h.
//
// sums (rows, chunks, heads, n), tops and totals (rows, chunks, heads); cosines, sines of the row.
struct Chunks {
  int row, head, n_heads, n_chunks, n, n_pairs;
};
INLINE Chunks chunks_of(int row, int head, int n_heads, int n_chunks, int n, int n_pairs) {
  Chunks out;
  out.row = row;
  out.head = head;
  out.n_heads = n_heads;
  out.n_chunks = n_chunks;
  out.n = n;
  out.n_pairs = n_pairs;
  return out;
}
template <typename T>
INLINE void join_chunks(Chunks of, const GLOBAL float* sums, const GLOBAL float* tops,
                        const GLOBAL float* totals, float sink, const GLOBAL float* cosines,
                        const GLOBAL float* sines, GLOBAL T* out, int me, int n_threads) {
  const wide first = (wide)of.row * of.n_chunks * of.n_heads + of.head;
  float most = sink;
  UNROLL_BY_4 for (int c = 0; c < of.n_chunks; c++)
    most = largest(most, tops[first + (wide)c * of.n_heads]);
  for (int channel = 4 * me; channel < of.n; channel += 4 * n_threads) {
    float bottom = power_of_e(plus(sink, -most)), v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL_BY_4 for (int c = 0; c < of.n_chunks; c++) {
      const wide at = first + (wide)c * of.n_heads;
      const float total = totals[at], share = power_of_e(plus(tops[at], -most));
      const uint4 four = load16_early(sums, 4 * (at * of.n + channel));
      const unsigned word[4] = {four.x, four.y, four.z, four.w};
      const bool is_seen = total != 0.0f;  // a NaN is: it spoils the row
      bottom = is_seen ? fused(total, share, bottom) : bottom;
      UNROLL for (int i = 0; i < 4; i++)
        v[i] = is_seen ? fused(as_float(word[i]), share, v[i]) : v[i];
    }
    const wide to = ((wide)of.row * of.n_heads + of.head) * of.n + channel;
    UNROLL for (int i = 0; i < 4; i += 2) {
      const float a = over(v[i], bottom), b = over(v[i + 1], bottom);
      const int pair = (channel + i - (of.n - 2 * of.n_pairs)) / 2;
      const bool is_turned = channel + i >= of.n - 2 * of.n_pairs;
      const float c = is_turned ? cosines[pair] : 1.0f, s = is_turned ? sines[pair] : 0.0f;
      put(out, to + i, is_turned ? plus(times(a, c), times(b, s)) : a);
      put(out, to + i + 1, is_turned ? plus(times(b, c), -times(a, s)) : b);
    }
  }
}
