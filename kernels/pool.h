// A channel of a compressed row before its norm: the values of its tokens, weighted by the softmax
// of their gates, tokens in order. Needs row.h.
//
// raw (R, 2, width) float: values and gates by slot; slots int, in token order. If is_overlapping
// older tokens (the first half, none if is_first) give their first half of channels, newer ones
// their second.
INLINE float pooled_channel(const GLOBAL float* raw, const GLOBAL int* slots, int n_tokens,
                            int width, int channel, bool is_overlapping, bool is_first) {
  const int n_older = is_first ? 0 : n_tokens / 2, half_width = is_overlapping ? width / 2 : 0;
  float top = as_float(0xff800000u);
  for (int t = 0; t < n_tokens; t++) {
    const int c = channel + (t >= n_older ? half_width : 0);
    const float gate = raw[((wide)slots[t] * 2 + 1) * width + c];
    top = gate > top ? gate : top;
  }
  float sum = 0.0f, total = 0.0f;
  for (int t = 0; t < n_tokens; t++) {
    const int c = channel + (t >= n_older ? half_width : 0);
    const float weight = power_of_e(plus(raw[((wide)slots[t] * 2 + 1) * width + c], -top));
    sum = plus(sum, weight);
    total = fused(weight, raw[(wide)slots[t] * 2 * width + c], total);
  }
  return over(total, sum);
}
