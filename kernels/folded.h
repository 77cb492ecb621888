// Stages of formats whose scales go into the weights (IS_FOLDED), so that a stage has one factor
// left, and one for the sum of its minima.
//
// A lane takes N_PLANES times 16 values of two columns: plane by plane they lie where the
// format's `plane_at` and `eight_at` say, so that it needs one scale and one minimum for each
// plane. Which lane has which k does not matter to the sums: x is read alike. The header defines
// code_words, scale_pairs, folded and whole_scales.

// Eight values in a row, as they lie.
template <typename T>
INLINE void load_eight(const GLOBAL T* x, wide at, PRIVATE unsigned* raw) {
  UNROLL for (int i = 0; i < RAW_WORDS; i += 4) {
    const uint4 v = load16(x, (wide)sizeof(T) * at + 4 * i);
    raw[i] = v.x; raw[i + 1] = v.y; raw[i + 2] = v.z; raw[i + 3] = v.w;
  }
}

// c += the eight values of `b` times the weights `low` and `high` of both columns; least += those
// times the minima.
INLINE void add_eight(PRIVATE float* c, PRIVATE float* least, PRIVATE const unsigned* low,
                      PRIVATE const unsigned* high, unsigned m_low, unsigned m_high,
                      PRIVATE const unsigned* b) {
  const unsigned ma[4] = {m_low, m_low, m_low, m_low};
  const unsigned mb[4] = {m_high, m_high, m_high, m_high};
  UNROLL for (int side = 0; side < 2; side++) {
    multiply_limbs(c, low, high, b, side);
    multiply_limbs(least, ma, mb, b, side);
  }
}
// acc += the stage of `from` bytes into each row, with the x at `here`.
template <typename T>
INLINE void add_stage(PRIVATE float* acc, SHARED_PTR const unsigned* stage,
                      SHARED_PTR const unsigned*, wide row_bytes, wide base, int from,
                      const GLOBAL T* x, Place here, Place, int, PRIVATE unsigned*,
                      unsigned lane) {
  const unsigned g = lane / 4, t = lane % 4;
  const unsigned low_at = column_at(base, g, row_bytes, from);
  const unsigned high_at = column_at(base, g + 8, row_bytes, from);
  SHARED_PTR const unsigned* low = stage + g * COLUMN_WORDS;
  SHARED_PTR const unsigned* high = low + 8 * COLUMN_WORDS;
  unsigned a[4], b[4], a_scale[N_PLANES], b_scale[N_PLANES], a_least[N_PLANES], b_least[N_PLANES];
  UNROLL for (int i = 0; i < 4; i++) b[i] = 0;
  UNROLL for (int i = 0; i < N_PLANES; i++) b_scale[i] = b_least[i] = 0;
  float da, ma, db = 0.0f, mb = 0.0f;
  code_words(low, low_at, t, a);
  scale_pairs(low, low_at, t, a_scale, a_least);
  whole_scales(low, low_at, &da, &ma);
#if COLUMNS > 8
  code_words(high, high_at, t, b);
  scale_pairs(high, high_at, t, b_scale, b_least);
  whole_scales(high, high_at, &db, &mb);
#endif
  float c[4] = {0.0f, 0.0f, 0.0f, 0.0f}, least[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  const int at = here.row_at + here.k + plane_at(0, t);
  const GLOBAL T* eights[2] = {x + at + eight_at(0, t), x + at + eight_at(1, t)};
  UNROLL for (int plane = 0; plane < N_PLANES; plane++) {
    UNROLL for (int eight = 0; eight < 2; eight++) {
      unsigned raw[RAW_WORDS], limbs[4 * X_LIMBS], low_pairs[4], high_pairs[4];
      load_eight(eights[eight], plane_at(plane, 0), raw);
      order_x(raw, limbs);
      UNROLL for (int i = 0; i < 2; i++) {
        folded(a[2 * eight + i], plane, a_scale[plane], low_pairs + 2 * i);
        folded(b[2 * eight + i], plane, b_scale[plane], high_pairs + 2 * i);
      }
      add_eight(c, least, low_pairs, high_pairs, a_least[plane], b_least[plane], limbs);
    }
  }
  add_scaled(acc, c, da, db);
  add_scaled(acc, least, -ma, -mb);
}
