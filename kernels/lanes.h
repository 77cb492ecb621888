// A row of 32 * VALUES channels over the lanes of a simdgroup: a lane holds runs of 8 channels,
// or one run of VALUES where that is no multiple of 8.
#if VALUES % 8 == 0
#define RUN 8
#else
#define RUN VALUES
#endif
INLINE int channel_of(int i, unsigned lane) {
  return (i / RUN * 32 + (int)lane) * RUN + i % RUN;
}
// The lane's channels of the row at element `at`.
template <typename T>
INLINE void load_row(const GLOBAL T* base, wide at, unsigned lane, PRIVATE float* v) {
#if RUN == 8
  UNROLL for (int run = 0; run < VALUES; run += 8) {
    const wide from = at + channel_of(run, lane);
    if (sizeof(T) == 2) {
      const uint4 bits = load16(base, 2 * from);
      const unsigned word[4] = {bits.x, bits.y, bits.z, bits.w};
      UNROLL for (int i = 0; i < 4; i++) {
        v[run + 2 * i] = as_float(word[i] << 16);
        v[run + 2 * i + 1] = as_float(word[i] & 0xffff0000u);
      }
    } else {
      const uint4 low = load16(base, 4 * from), high = load16(base, 4 * from + 16);
      const unsigned word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      UNROLL for (int i = 0; i < 8; i++) v[run + i] = as_float(word[i]);
    }
  }
#else
  UNROLL for (int i = 0; i < VALUES; i++) v[i] = value_of(base[at + channel_of(i, lane)]);
#endif
}
