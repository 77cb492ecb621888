// The portable dialect on CUDA (compiled by NVRTC; MLX writes the signature around a body).
//
// The lines that begin with "//! entry" open every body; ops/dispatch.py puts them there.
//! entry const unsigned thread_idx = threadIdx.x;
//! entry const unsigned block_idx = blockIdx.x;
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char byte_t;
typedef unsigned short half_bits;
typedef long long wide;

#define GLOBAL
#define SHARED_PTR
#define PRIVATE
#define CONSTANT_TABLE __device__ const
// A constant that stays in a register: (v & mask) | it is then one instruction.
#define IN_REGISTER(name, value) __constant__ unsigned name = value
#define INLINE __device__ __forceinline__
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define UNROLL_BY_2 _Pragma("unroll 2")
#define UNROLL_BY_4 _Pragma("unroll 4")

// Bits and floats.
INLINE unsigned as_bits(float v) { return __float_as_uint(v); }
INLINE float as_float(unsigned v) { return __uint_as_float(v); }
INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE float times(float a, float b) { return __fmul_rn(a, b); }
INLINE float plus(float a, float b) { return __fadd_rn(a, b); }
INLINE float over(float a, float b) { return __fdiv_rn(a, b); }
INLINE float inverse(float v) { return __frcp_rn(v); }
// Within two units in the last place.
INLINE float near_inverse(float v) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
INLINE float root(float v) { return __fsqrt_rn(v); }
INLINE float power_of_e(float v) { return expf(v); }
INLINE float natural_log(float v) { return logf(v); }
INLINE float half_value(unsigned bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
INLINE unsigned rounded_bf16(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
INLINE unsigned bf16_pair(float low, float high) {
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

// Four bytes of the eight in (high:low) by the low four nibbles of `pick`, none above 7.
INLINE unsigned pick_bytes(unsigned low, unsigned high, unsigned pick) {
  unsigned out;  // __byte_perm would mask the nibbles once more
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(pick));
  return out;
}
// The low 32 bits of (high:low) >> n; n < 32.
INLINE unsigned shift_pair(unsigned low, unsigned high, unsigned n) {
  return __funnelshift_r(low, high, n);
}
// a - b of two bf16 pairs; exact for what the kernels subtract.
INLINE unsigned minus_bf16x2(unsigned a, unsigned b) {
  unsigned out;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
// Two whole numbers below 256, the halves of `codes`, times 2^-133 times a bf16 pair; exact for
// what the kernels multiply. Such halves are subnormal bf16 numbers.
INLINE unsigned times_codes(unsigned codes, unsigned pair) {
  unsigned out;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(codes), "r"(pair));
  return out;
}

// Memory. Vectors of 16 bytes; `byte_at` must be a multiple of 16.
INLINE uint4 load16(const void* base, wide byte_at) {
  return __ldg(reinterpret_cast<const uint4*>(static_cast<const char*>(base) + byte_at));
}
// As load16, but not put off beyond the next `simd_sync` or `barrier`.
INLINE uint4 load16_early(const void* base, wide byte_at) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(static_cast<const char*>(base) + byte_at)
               : "memory");
  return v;
}
INLINE uint2 load8(const void* base, wide byte_at) {
  return __ldg(reinterpret_cast<const uint2*>(static_cast<const char*>(base) + byte_at));
}
INLINE void store16(void* base, wide byte_at, const unsigned* v) {
  *reinterpret_cast<uint4*>(static_cast<char*>(base) + byte_at) =
      make_uint4(v[0], v[1], v[2], v[3]);
}
// Copy `n_valid` of 16 bytes (0..16) to shared memory, the rest becomes zero. It has arrived
// after `copies_wait` and a `simd_sync` or `barrier`.
INLINE void copy16(uint4* to, const void* base, wide byte_at, int n_valid) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const char* from = static_cast<const char*>(base) + byte_at;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
               "r"(n_valid)
               : "memory");
}
INLINE void copies_close() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until at most the newest N groups are still on their way.
template <int N>
INLINE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

INLINE float value_of(float v) { return v; }
INLINE float value_of(__nv_bfloat16 v) { return __bfloat162float(v); }
INLINE void put(float* to, wide i, float v) { to[i] = v; }
INLINE void put(__nv_bfloat16* to, wide i, float v) { to[i] = __float2bfloat16_rn(v); }

// Collectives: all 32 lanes of a simdgroup (all threads of a block for `barrier`) take part.
INLINE void simd_sync() { __syncwarp(); }
INLINE void barrier() { __syncthreads(); }
INLINE float from_lane_xor(float v, unsigned mask) { return __shfl_xor_sync(~0u, v, mask); }
INLINE float from_lane(float v, unsigned lane) { return __shfl_sync(~0u, v, lane); }

// c (16 x 8) += a (16 x 16) b (16 x 8), bf16 pairs in, float out. With g = lane / 4 and
// t = lane % 4: a0 = A[g][2t, 2t+1], a1 = A[g+8][same], a2 = A[g][2t+8, 2t+9], a3 =
// A[g+8][same]; b0 = B[2t, 2t+1][g], b1 = B[2t+8, 2t+9][g]; c0, c1 = C[g][2t, 2t+1],
// c2, c3 = C[g+8][same]. A column of C depends on its own column of B alone.
INLINE void multiply_tiles(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                           unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
