// The portable dialect on Metal (MLX writes the signature around a body and compiles it).
//
// The lines that begin with "//! entry" open every body; ops/dispatch.py puts them there.
//! entry const uint thread_idx = thread_position_in_threadgroup.x;
//! entry const uint block_idx = threadgroup_position_in_grid.x;
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

typedef uchar byte_t;
typedef ushort half_bits;
typedef long wide;

#define GLOBAL device
#define SHARED_PTR threadgroup
#define PRIVATE thread
#define CONSTANT_TABLE constant
// A constant that stays in a register: (v & mask) | it is then one instruction.
#define IN_REGISTER(name, value) constant uint name = value
#define INLINE static inline
#define SHARED(type, name, count) threadgroup type name[count]
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#define UNROLL_BY_2 _Pragma("clang loop unroll_count(2)")
#define UNROLL_BY_4 _Pragma("clang loop unroll_count(4)")

// Bits and floats.
INLINE uint as_bits(float v) { return as_type<uint>(v); }
INLINE float as_float(uint v) { return as_type<float>(v); }
INLINE float fused(float a, float b, float c) { return fma(a, b, c); }
INLINE float times(float a, float b) { return a * b; }
INLINE float plus(float a, float b) { return a + b; }
INLINE float over(float a, float b) { return a / b; }
INLINE float inverse(float v) { return 1.0f / v; }
// Within two units in the last place.
INLINE float near_inverse(float v) { return 1.0f / v; }
INLINE float root(float v) { return precise::sqrt(v); }
INLINE float power_of_e(float v) { return precise::exp(v); }
INLINE float natural_log(float v) { return precise::log(v); }
INLINE float half_value(uint bits) { return float(as_type<half>(ushort(bits))); }
INLINE uint rounded_bf16(float v) {
  const uint bits = as_bits(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
INLINE uint bf16_pair(float low, float high) {
  return rounded_bf16(low) | rounded_bf16(high) << 16;
}

// Four bytes of the eight in (high:low) by the low four nibbles of `pick`, none above 7.
INLINE uint pick_bytes(uint low, uint high, uint pick) {
  const ulong both = (ulong(high) << 32) | low;
  uint out = 0;
  UNROLL for (uint i = 0; i < 4; i++)
    out |= uint((both >> (8u * ((pick >> (4u * i)) & 7u))) & 255u) << (8u * i);
  return out;
}
// The low 32 bits of (high:low) >> n; n < 32.
INLINE uint shift_pair(uint low, uint high, uint n) {
  return uint(((ulong(high) << 32) | low) >> n);
}
// a - b of two bf16 pairs; exact for what the kernels subtract.
INLINE uint minus_bf16x2(uint a, uint b) {
  const float low = as_float(a << 16) - as_float(b << 16);
  const float high = as_float(a & 0xffff0000u) - as_float(b & 0xffff0000u);
  return (as_bits(low) >> 16) | (as_bits(high) & 0xffff0000u);
}
// Two whole numbers below 256, the halves of `codes`, times 2^-133 times a bf16 pair; exact for
// what the kernels multiply. In two steps, as 2^-133 itself may count as zero.
INLINE uint times_codes(uint codes, uint pair) {
  const float low = float(codes & 0xffffu) * (as_float(pair << 16) * 0x1p-100f);
  const float high = float(codes >> 16) * (as_float(pair & 0xffff0000u) * 0x1p-100f);
  return (as_bits(low * 0x1p-33f) >> 16) | (as_bits(high * 0x1p-33f) & 0xffff0000u);
}

// Memory. Vectors of 16 bytes; `byte_at` must be a multiple of 16.
template <typename T>
INLINE uint4 load16(const device T* base, wide byte_at) {
  return *(const device uint4*)((const device uchar*)base + byte_at);
}
// As load16, but not put off beyond the next `simd_sync` or `barrier`.
template <typename T>
INLINE uint4 load16_early(const device T* base, wide byte_at) {
  return load16(base, byte_at);
}
template <typename T>
INLINE uint2 load8(const device T* base, wide byte_at) {
  return *(const device uint2*)((const device uchar*)base + byte_at);
}
template <typename T>
INLINE void store16(device T* base, wide byte_at, const thread uint* v) {
  *(device uint4*)((device uchar*)base + byte_at) = uint4(v[0], v[1], v[2], v[3]);
}
// Copy `n_valid` of 16 bytes (0..16) to shared memory, the rest becomes zero. It has arrived
// after `copies_wait` and a `simd_sync` or `barrier`.
template <typename T>
INLINE void copy16(threadgroup uint4* to, const device T* base, wide byte_at, int n_valid) {
  const device uchar* from = (const device uchar*)base + byte_at;
  if (n_valid == 16) {
    *to = *(const device uint4*)from;
    return;
  }
  uint4 out = uint4(0);
  for (int i = 0; i < n_valid; i++) out[i / 4] |= uint(from[i]) << (8 * (i % 4));
  *to = out;
}
INLINE void copies_close() {}
// Wait until at most the newest N groups are still on their way.
template <int N>
INLINE void copies_wait() {}

template <typename T>
INLINE float value_of(T v) { return float(v); }
template <typename T>
INLINE void put(device T* to, wide i, float v) { to[i] = T(v); }

// Collectives: all 32 lanes of a simdgroup (all threads of a block for `barrier`) take part.
INLINE void simd_sync() { simdgroup_barrier(mem_flags::mem_threadgroup); }
INLINE void barrier() { threadgroup_barrier(mem_flags::mem_threadgroup); }
INLINE float from_lane_xor(float v, uint mask) { return simd_shuffle_xor(v, ushort(mask)); }
INLINE float from_lane(float v, uint lane) { return simd_shuffle(v, ushort(lane)); }

// Where Apple GPUs hold the pair (row, 2p .. 2p+1) of an 8 x 8 matrix: lane -> (row, p).
INLINE uint matrix_row(uint lane) { return ((lane >> 2) & 4u) + ((lane >> 1) & 3u); }
INLINE uint matrix_pair(uint lane) { return ((lane >> 2) & 2u) + (lane & 1u); }
// The lane that holds (row, pair p): the inverse.
INLINE uint matrix_lane(uint row, uint p) {
  return ((row & 4u) << 2) | ((p & 2u) << 2) | ((row & 3u) << 1) | (p & 1u);
}
INLINE simdgroup_float8x8 tile_of(uint pair_bits, uint lane) {
  const uint mine = simd_shuffle(pair_bits, ushort(4 * matrix_row(lane) + matrix_pair(lane)));
  simdgroup_float8x8 out;
  out.thread_elements()[0] = as_float(mine << 16);
  out.thread_elements()[1] = as_float(mine & 0xffff0000u);
  return out;
}
// As tile_of, turned: lane (g, t) of the pair layout holds B[2t, 2t+1][g].
INLINE simdgroup_float8x8 turned_tile_of(uint pair_bits, uint lane) {
  const uint k = matrix_row(lane), n = 2 * matrix_pair(lane);
  const uint first = simd_shuffle(pair_bits, ushort(4 * n + k / 2));
  const uint second = simd_shuffle(pair_bits, ushort(4 * (n + 1) + k / 2));
  simdgroup_float8x8 out;
  out.thread_elements()[0] = as_float((k & 1u) ? (first & 0xffff0000u) : (first << 16));
  out.thread_elements()[1] = as_float((k & 1u) ? (second & 0xffff0000u) : (second << 16));
  return out;
}
INLINE void add_product(thread float* c, simdgroup_float8x8 a0, simdgroup_float8x8 a1,
                        simdgroup_float8x8 b0, simdgroup_float8x8 b1, uint lane) {
  const ushort from = ushort(4 * matrix_row(lane) + matrix_pair(lane));
  simdgroup_float8x8 sum;
  sum.thread_elements()[0] = simd_shuffle(c[0], from);
  sum.thread_elements()[1] = simd_shuffle(c[1], from);
  simdgroup_multiply_accumulate(sum, a0, b0, sum);
  simdgroup_multiply_accumulate(sum, a1, b1, sum);
  const ushort back = ushort(matrix_lane(lane / 4, lane % 4));
  const float low = sum.thread_elements()[0], high = sum.thread_elements()[1];
  c[0] = simd_shuffle(low, back);
  c[1] = simd_shuffle(high, back);
}

// c (16 x 8) += a (16 x 16) b (16 x 8), bf16 pairs in, float out. With g = lane / 4 and
// t = lane % 4: a0 = A[g][2t, 2t+1], a1 = A[g+8][same], a2 = A[g][2t+8, 2t+9], a3 =
// A[g+8][same]; b0 = B[2t, 2t+1][g], b1 = B[2t+8, 2t+9][g]; c0, c1 = C[g][2t, 2t+1],
// c2, c3 = C[g+8][same]. A column of C depends on its own column of B alone.
INLINE void multiply_tiles(thread float* c, uint a0, uint a1, uint a2, uint a3, uint b0,
                           uint b1) {
  const uint lane = simd_prefix_exclusive_sum(1u);
  const simdgroup_float8x8 low = turned_tile_of(b0, lane), high = turned_tile_of(b1, lane);
  add_product(c, tile_of(a0, lane), tile_of(a2, lane), low, high, lane);
  add_product(c + 2, tile_of(a1, lane), tile_of(a3, lane), low, high, lane);
}
